import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

const SHARED = join(__dirname, '../../../../shared/data')

/** A few shapes of URLs as they are found, so that the tests say something without the lists too. */
const SAMPLE = [
  'http://example.com',
  'https://www.example.com:443/a//b/?utm_source=x&b=2&a=1#top',
  'https://user:p%40ss@example.com:8443/%7Euser/%e4%b8%ad?q=%C3%A9+x&&=#!/route',
  'http://192.0.2.1:8080/cgi-bin/x;jsessionid=1?%',
  'https://[2001:DB8::1]/%E9t%E9?x=%E9',
  'https://web.archive.org/web/2020/http://example.org/a%2520b',
  'https://xn--bcher-kva.example/b%c3%bccher?redirect=https%3a%2f%2fexample.com%2f',
]

/** The real URLs beside the checkout, or a sample where there are none. */
export function realUrls(): readonly string[] {
  const folder = join(SHARED, 'urls')
  if (!existsSync(folder)) return SAMPLE
  const lists = readdirSync(folder).filter((name) => name.endsWith('.txt'))
  return SAMPLE.concat(lists.flatMap((name) => readFileSync(join(folder, name), 'utf8').split('\n').filter(Boolean)))
}

/** One case of `suites/rfc3986.json`. */
export interface SuiteCase {
  readonly input: string
  readonly expected: string | null
  readonly notEquivalent?: string
  readonly safe: boolean
}

/** The suite beside the checkout, or none of its cases: the facts that matter stand in safe-url.test.ts. */
export function rfc3986Suite(): readonly SuiteCase[] {
  const file = join(SHARED, 'suites/rfc3986.json')
  if (!existsSync(file)) return []
  const { cases } = JSON.parse(readFileSync(file, 'utf8')) as { readonly cases: readonly SuiteCase[] }
  return cases.filter((item) => item.safe)
}
