/** The name of a query parameter (or of a file), or a pattern for it. */
export type NamePattern = string | RegExp

/** Which parameters stay; the names are those of normalize-url. */
export interface ParameterFilter {
  readonly keepQueryParameters?: readonly NamePattern[] | undefined
  readonly removeQueryParameters?: boolean | readonly NamePattern[] | undefined
}

/**
 * A URL without the query parameters that a filter removes; the others stay as they are written. Takes linear time:
 * normalize-url removes them one at a time from `URLSearchParams`, and 177 KiB of them kept it busy for 18 seconds.
 *
 * @param href normalized by `safeUrl`
 * @example
 * withoutParameters('http://example.com/?b=1&c=2', { removeQueryParameters: ['b'] }) // 'http://example.com/?c=2'
 */
export function withoutParameters(href: string, filter: ParameterFilter): string {
  const stays = predicate(filter)
  const [, start = '', query, fragment = ''] = /^([^?#]*)(?:\?([^#]*))?(.*)$/su.exec(href) ?? []
  if (query === undefined || stays === undefined) return href
  const left = query.split('&').filter((parameter) => stays(nameOf(parameter)))
  return `${start}${left.length === 0 ? '' : `?${left.join('&')}`}${fragment}`
}

/** Undefined: all stay. */
function predicate({
  keepQueryParameters: keep,
  removeQueryParameters: remove,
}: ParameterFilter): ((name: string) => boolean) | undefined {
  if (keep !== undefined) return (name) => matches(name, keep)
  if (remove === true) return () => false
  return Array.isArray(remove) && remove.length > 0 ? (name) => !matches(name, remove) : undefined
}

function nameOf(parameter: string): string {
  const [name = ''] = new URLSearchParams(parameter).keys()
  return name
}

function matches(name: string, patterns: readonly NamePattern[]): boolean {
  // `search` takes no notice of `g`, `y` and lastIndex.
  return patterns.some((pattern) => (typeof pattern === 'string' ? pattern === name : name.search(pattern) !== -1))
}
