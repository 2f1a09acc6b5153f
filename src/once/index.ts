export { OnceFailedError, OnceRunningError, TokenReusedError } from '../errors'
export type { Duration } from '../text/digest'
export {
  forgetToken,
  OnceToken,
  removeExpiredTokens,
  type RemoveExpiredTokensOptions,
  type TokenAnswer,
  tokenOf,
} from './tokens'
export { once, type OnceOptions, type OnceResult } from './once'
