export { countWithin, type CountWithinOptions, recount } from './count-within'
export { NumberWithin, type NumberWithinOptions, numberWithinSchema } from './number-within'
