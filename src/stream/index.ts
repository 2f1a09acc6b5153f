export { findOrCreateStream, type FindOrCreateStreamOptions, findOrCreateTransform } from './stream'
