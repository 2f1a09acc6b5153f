/** The entry `typeorm-unique-text/normalizers`: values for the option `normalize`, and what you need to write your own. */
export { type CanonicalUrlOptions } from './url'
export { email } from './normalizers'
export { compose, normalizer, type Normalizer } from './normalizer'
export { collapseWhitespace, lowerCase, nfc, trim } from './normalizers'
export { Refusal } from './refusal'
export { url } from './url'
