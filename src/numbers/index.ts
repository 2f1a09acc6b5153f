export { countWithin, type CountWithinOptions } from './count-within'
export { NumberWithin, numberWithinSchema } from './number-within'
export type { NumberWithinOptions } from '../declare/attach-number'
