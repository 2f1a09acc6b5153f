/** The entry `typeorm-unique-text/normalizers`: values for the option `normalize`, and the tools to write your own. */
export { type CanonicalUrlOptions, url } from './url'
export { collapseWhitespace, email, lowerCase, nfc, trim } from './normalizers'
export { compose, type Normalizer, normalizer, Refusal } from './normalizer'
