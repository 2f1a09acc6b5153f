export * from './errors'
export { UniqueText, uniqueText } from './typeorm/decorator'
export { withUniqueText } from './typeorm/data-source'
