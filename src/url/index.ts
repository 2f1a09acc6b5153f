export { formatUrl, parseUrl, type UrlParts } from './url-parts'
export { Url } from './url-entity'
