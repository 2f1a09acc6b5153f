/** The entry `typeorm-unique-text/normalizers`: values for the option `normalize`, and what you need to write your own. */
export { type CanonicalUrlOptions } from './canonical-url'
export { email } from './email'
export { compose, normalizer, type Normalizer, type NormalizeOption } from './normalizer'
export { collapseWhitespace, lowerCase, nfc, trim } from './normalizers'
export { Refusal } from './refusal'
export { url } from './url-presets'
