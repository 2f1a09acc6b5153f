export { findOrCreateStream } from './find-or-create-stream'
export { findOrCreateTransform } from './find-or-create-transform'
export type { FindOrCreateStreamOptions } from '../rows/call-options'
