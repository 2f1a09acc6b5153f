export { formatUrl, parseUrl, type UrlParts } from './url-parts'
export { type ParseManyOptions, Url } from './url-entity'
