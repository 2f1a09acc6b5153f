export { formatUrl, parseUrl, type UrlParts } from './url-parts'
export { type ParseManyOptions, type ParseOptions, Url } from './url-entity'
