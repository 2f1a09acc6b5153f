// This file has only the dependency, with our own types. normalize-url is ESM only and our package CommonJS, so the
// build bundles it into this one file. Our published declarations must not import its types.
import normalizeUrlModule from 'normalize-url'

/** The options of normalize-url that we set. The others keep their defaults. */
export interface NormalizeUrlOptions {
  readonly forceHttps: boolean
  readonly removeDirectoryIndex: boolean | readonly (string | RegExp)[]
  readonly removeQueryParameters: boolean
  readonly removeTrailingSlash: boolean
  readonly sortQueryParameters: boolean
  readonly stripAuthentication: boolean
  readonly stripHash: boolean
  readonly stripTextFragment: boolean
  readonly stripWWW: boolean
}

/** normalize-url 9.0.1. It throws if a text is not a URL, and its error may contain the text. */
export const normalizeUrl: (text: string, options: NormalizeUrlOptions) => string = normalizeUrlModule
