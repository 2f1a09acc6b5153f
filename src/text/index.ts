/** Entry `typeorm-unique-text/normalizers`: what `normalize` of a declaration may say. */
export { type CanonicalUrlOptions } from './canonical-url'
export { email } from './email'
export { compose, normalizer, type Normalizer, type NormalizeOption } from './normalizer'
export { collapseWhitespace, lowerCase, nfc, trim } from './normalizers'
export { Refusal } from './refusal'
export { url } from './url-presets'
