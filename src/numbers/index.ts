export { countWithin, type CountWithinOptions } from './count-within'
export { NumberWithin, type NumberWithinOptions, numberWithinSchema } from '../core'
