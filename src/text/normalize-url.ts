// Nothing but the dependency, under types of our own. normalize-url is ESM only and our package CommonJS: the build
// bundles it into this one file, and the declarations we publish must not import its types.
import normalizeUrlModule from 'normalize-url'

/** The options of normalize-url that we set; the others keep its defaults. */
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

/** normalize-url 9.0.1. Throws on what is not a URL; its error may hold the text. */
export const normalizeUrl: (text: string, options: NormalizeUrlOptions) => string = normalizeUrlModule
