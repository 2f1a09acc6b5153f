export { findOrCreateStream, type FindOrCreateStreamOptions } from './find-or-create-stream'
export { findOrCreateTransform } from './find-or-create-transform'
