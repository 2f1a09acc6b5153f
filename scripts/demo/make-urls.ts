/**
 * Writes examples/urls.txt: URLs of our own making, always the same, as varied as those that are found. Every host is
 * one that documents may use (RFC 2606, 5737, 3849), so that no one's site is named.
 *
 *     npx tsx scripts/demo/make-urls.ts
 */
import { writeFileSync } from 'node:fs'
import path from 'node:path'

/** Numbers that are always the same: mulberry32. */
function random(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

const next = random(20_260_101)
const below = (limit: number): number => Math.floor(next() * limit)
const chance = (probability: number): boolean => next() < probability
function pick<T>(all: readonly T[]): T {
  const one = all[below(all.length)]
  if (one === undefined) throw new RangeError('nothing to pick from')
  return one
}
const times = <T>(count: number, make: (index: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i))
const characters = (count: number, alphabet: string): string =>
  times(count, () => alphabet[below(alphabet.length)]).join('')

const BASE64URL = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
const WORDS =
  'about archive article atlas blog book bridge cart catalog cloud coast daily delta docs east events feed field forest forum garden guide harbor help history home hotel image index island item journal lake letter library list login map market media meadow mountain museum news north notes offer order page paper photo place post press price product profile project radio recipe report review river road room route school search season shop song south station story street style summer table team theme ticket topic tower town track trail travel valley video village wiki winter'.split(
    ' ',
  )
const NATIONAL = ['café', 'naïve', 'straße', 'mañana', 'żółw', 'привет', '東京', 'सड़क', 'çay', 'smørrebrød']
const HOSTS = [
  'example.com',
  'www.example.com',
  'example.org',
  'www.example.org',
  'example.net',
  ...times(60, (index) => `${WORDS[index] ?? 'a'}.${pick(['example.com', 'example.org', 'example.net'])}`),
  ...times(80, () => `${pick(WORDS)}-${pick(WORDS)}.${pick(['example', 'test'])}`),
  ...times(20, () => `${pick(['www', 'm', 'cdn', 'static', 'api', 'img'])}.${pick(WORDS)}.example`),
  'localhost',
  '192.0.2.1',
  '198.51.100.23',
  '203.0.113.9',
  '[2001:db8::1]',
  '[2001:db8:0:1::80]',
]
/** As typed, and as they are in DNS. */
const INTERNATIONAL = [
  ['bücher.example', 'xn--bcher-kva.example'],
  ['пример.example', 'xn--e1afmkfd.example'],
  ['例え.test', 'xn--r8jz45g.test'],
  ['παράδειγμα.test', 'xn--hxajbheg2az3al.test'],
  ['mañana.example', 'xn--maana-pta.example'],
] as const

/** A URL in its parts, the normalized spelling of each. */
interface Url {
  readonly scheme: 'http' | 'https'
  readonly host: string
  readonly port: string
  readonly path: string
  readonly rest: string
}

const segment = (): string => {
  const roll = next()
  if (roll < 0.55) return pick(WORDS)
  if (roll < 0.7) return `${pick(WORDS)}-${pick(WORDS)}-${below(10_000)}`
  if (roll < 0.78) return String(below(1_000_000))
  if (roll < 0.84) return encodeURIComponent(pick(NATIONAL))
  if (roll < 0.88) return `${pick(WORDS)}%20${pick(WORDS)}`
  if (roll < 0.91) return `~${pick(WORDS)}`
  if (roll < 0.94) return `${pick(WORDS)};v=${below(9)}`
  if (roll < 0.97) return `${pick(WORDS)},(${below(99)})!*'`
  return `%2F${pick(WORDS)}%3D`
}

const parameter = (): string =>
  pick([
    () => `${pick(WORDS)}=${below(5_000)}`,
    () => `q=${pick(WORDS)}+${pick(WORDS)}`,
    () => `${pick(WORDS)}=${encodeURIComponent(pick(NATIONAL))}`,
    () => `url=https%3A%2F%2F${pick(WORDS)}.example%2F${pick(WORDS)}%3Fid%3D${below(999)}`,
    () => `utm_source=${pick(WORDS)}&utm_medium=${pick(['mail', 'feed', 'banner'])}`,
    () => `token=${characters(24, BASE64URL)}`,
    () => pick(WORDS),
    () => `${pick(WORDS)}[]=${below(9)}`,
  ])()

function makePath(): string {
  if (chance(0.04)) return '/'
  const segments = times(1 + below(5), segment)
  const ending = pick(['', '', '', '/', '.html', '.php', '.pdf', '.jpg', '.tar.gz', '//'])
  return `/${segments.join('/')}${ending}`
}

function makeRest(): string {
  const query = chance(0.42) ? `?${times(1 + below(4), parameter).join('&')}` : chance(0.02) ? '?' : ''
  const fragment = chance(0.15) ? `#${pick([pick(WORDS), `!/${pick(WORDS)}/${below(99)}`, `L${below(999)}`, ''])}` : ''
  return query + fragment
}

function makeUrl(): Url {
  const host = chance(0.06) ? pick(INTERNATIONAL)[1] : pick(HOSTS)
  const port = chance(0.06) ? `:${pick(['8080', '8443', '3000', '81', '65535'])}` : ''
  return { scheme: chance(0.72) ? 'https' : 'http', host, port, path: makePath(), rest: makeRest() }
}

/** Over what a B-tree entry holds, and of a kind that no compression makes shorter. */
function makeLongUrl(index: number): Url {
  const long = characters(2_750 + 150 * index, BASE64URL)
  const place = index % 3
  return {
    scheme: 'https',
    host: pick(HOSTS),
    port: '',
    path: place === 0 ? `/session/${long}` : '/callback',
    rest: place === 1 ? `?state=${long}` : place === 2 ? `#access_token=${long}` : '',
  }
}

const spelled = ({ scheme, host, port, path: name, rest }: Url): string => `${scheme}://${host}${port}${name}${rest}`

const randomCase = (text: string): string =>
  text.replace(/[a-z]/gi, (one) => (chance(0.5) ? one.toUpperCase() : one.toLowerCase()))

/** The same URL in another spelling. */
function respelled(url: Url): string {
  const { scheme, host, port, path: name } = url
  const typed = INTERNATIONAL.find(([, dns]) => dns === host)?.[0]
  return pick([
    () => spelled(url),
    () => spelled(url),
    () => spelled({ ...url, host: randomCase(host) }),
    () => spelled(url).replace(scheme, randomCase(scheme)),
    () => spelled({ ...url, port: port === '' ? (scheme === 'https' ? ':443' : ':80') : port }),
    () => spelled({ ...url, host: typed ?? host.toUpperCase() }),
    () => spelled({ ...url, path: `/${pick(WORDS)}/..${name}` }),
    () => spelled({ ...url, path: `/.${name}` }),
    () => spelled({ ...url, path: `/%2e${name}` }),
    () => spelled(url).replace(/%[0-9A-F]{2}/g, (triplet) => triplet.toLowerCase()),
    () => spelled({ ...url, path: name.replace(/[a-z~]/, (one) => `%${one.codePointAt(0)?.toString(16) ?? ''}`) }),
    () => spelled({ ...url, path: decodeNational(name) }),
    () => ` ${spelled(url)} `,
    () => spelled({ ...url, path: name.replace('/', '\\') }),
    () => spelled({ ...url, path: name.replace(/(?<=.)./, (one) => `${one}\t`) }),
  ])()
}

/** As a person types it: the letters themselves, which the standard encodes. */
const decodeNational = (text: string): string =>
  text.replace(/(?:%[89A-F][0-9A-F])+/g, (run) => decodeURIComponent(run))

/** What names no http(s) URL with a host, or one that the table has no columns for. */
function makeInvalid(): string {
  return pick([
    () => `ftp://${pick(HOSTS)}${makePath()}`,
    () => `mailto:${pick(WORDS)}@example.com`,
    () => `//${pick(HOSTS)}${makePath()}`,
    () => makePath(),
    () => pick(WORDS),
    () => `${pick(WORDS)} ${pick(WORDS)} ${pick(WORDS)}`,
    () => `www.${pick(WORDS)}.example/${pick(WORDS)}`,
    () => pick(['http://', 'https://', 'http:///', 'https://?q', 'http://#top', 'https:', 'http:/example.com/']),
    () => `https://${pick(WORDS)}:${characters(8, BASE64URL)}@${pick(WORDS)}.example/`,
    () => `http://${pick(HOSTS)}:${65_536 + below(9_999)}/`,
    () => `http://${pick(WORDS)}.example:0/`,
    () => `http://${pick(WORDS)}.example:http/`,
    () => `https://${times(6, () => characters(48, 'abcdefghijklmnopqrstuvwxyz')).join('.')}.example/`,
    () => `https://exa mple.com/${pick(WORDS)}`,
    () => `http://[2001:db8::1/${pick(WORDS)}`,
    () => `https://${pick(WORDS)}.example%2F${pick(WORDS)}`,
    () => `javascript:alert(${below(99)})`,
    () => `data:text/plain,${pick(WORDS)}`,
    () => `file:///home/${pick(WORDS)}/${pick(WORDS)}.html`,
    () => `urn:isbn:${below(1e9)}`,
  ])()
}

/**
 * Paths of equal MD5 (they differ in one letter), whatever follows them: two URLs of one host that share a hash, and yet
 * get a row each.
 */
const COLLIDING = [
  "/P.cPKDAA;hW9r,-Y&rjVl+H2SnMy(nLMupUX9Daz1gJ)A+3KtBpo-'XsVrxlE;idQsKUNFuTSDZP5VaoYs9Puslm1y4EfqwZiOSvhbcFGinVPEvnFldVnGIq39LCmaV",
  "/P.cPKDAA;hW9r,-Y&rjVp+H2SnMy(nLMupUX9Daz1gJ)A+3KtBpo-'XsVrxlE;idQsKUNFuTSDZP5VaoYs9Puslm1y4EfqwZiOSvhbcFGinVPEvnFldVnGIq39LCmaV",
] as const

function makeColliding(): Url[] {
  const places = ['https://example.com', 'https://example.org', 'https://atlas.example.net', 'https://192.0.2.1']
  const suffixes = ['', '/', '?page=2', '#top']
  return places.flatMap((place, index) =>
    COLLIDING.map((name): Url => {
      const host = place.slice('https://'.length)
      return { scheme: 'https', host, port: '', path: name, rest: suffixes[index] ?? '' }
    }),
  )
}

const DISTINCT = 3_400
const REPEATS = 2_200
const INVALID = 380

function makeList(): string[] {
  const urls = [...times(DISTINCT, makeUrl), ...times(14, makeLongUrl), ...makeColliding()]
  // Squared: few URLs are repeated often, and most once or never.
  const repeated = times(REPEATS, () => respelled(urls[Math.floor(next() ** 2 * urls.length)] ?? makeUrl()))
  const all = [...urls.map(spelled), ...repeated, ...times(INVALID, makeInvalid), ...times(6, () => '')]
  for (let last = all.length - 1; last > 0; last -= 1) {
    const other = below(last + 1)
    ;[all[last], all[other]] = [all[other] ?? '', all[last] ?? '']
  }
  return all
}

/** What the file holds, its last line end included. */
export const urlList: string = `${makeList().join('\n')}\n`

if (require.main === module) writeFileSync(path.join(__dirname, '../../examples/urls.txt'), urlList)
