export { formatUrl, parseUrl, type UrlParts } from './parts'
export { Url } from './url'
