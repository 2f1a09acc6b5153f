/**
 * Computes how many nodes, how much memory and how many rows a second a number of texts needs, from constants that each name
 * their origin. Pass your own: `npx tsx scripts/scale.ts 1e9 --key bigint --textBytes 80 --memoryBytes 64e9`.
 */
import { parseArgs } from 'node:util'

/**
 * Bytes unless the name says otherwise. Sizes: 1.5 million rows with a text of 80 bytes, inserted by 1,000 into PostgreSQL
 * 18.4, `pg_relation_size` by rows. Rates: maintainers/benchmark.md, "Large tables", streams of their own
 * choice, with an integer key.
 */
const CONSTANTS = {
  /** Yours: of the average text. */
  textBytes: 80,
  /** Measured: 149 a row with a bigint key, less its text. A uuid takes 9 more. */
  rowOverheadBytes: 69,
  /** Measured: of the unique index. */
  indexEntryBytes: 51,
  /** Yours: of one node. */
  memoryBytes: 32e9,
  /** Assumed: of the memory, what can hold index pages. The rest is for rows, sessions and the system. */
  cacheShare: 0.5,
  /** Yours. */
  diskBytes: 2e12,
  /** Measured there: each new row requests 0.2 to 0.5 index pages, each a read where no cache holds it. */
  indexReadsPerRow: 0.5,
  /** Assumed: of the disk, at random. */
  diskReadsPerSecond: 10_000,
}

/**
 * Sizes in bytes, measured. Entries of a uuid of version 4 are random, so its index needs memory and reads as the unique
 * index does. The rate of bigint was measured into 5 million rows, whose index is twice the server's cache, while the
 * system's cache holds it. The rate of uuid is computed: 0.88 of it, measured with calls of 1,000 into 300,000 rows.
 */
const KEYS = {
  bigint: { entry: 22.5, wider: 0, randomIndexes: 1, rowsPerSecond: 21_600, measuredTexts: 5e6 },
  uuid: { entry: 41, wider: 9, randomIndexes: 2, rowsPerSecond: 19_100, measuredTexts: 0 },
}

export type Key = keyof typeof KEYS

type Constants = typeof CONSTANTS

interface Need {
  readonly texts: number
  /** Rows, and the index of the key. */
  readonly dataBytes: number
  readonly indexBytes: number
  /** Indexes of which every insert needs another page. */
  readonly randomBytes: number
  /** So many that the random indexes are in memory, and everything on disk. */
  readonly nodes: number
  readonly rowsPerSecondOnOne: number
  readonly isExtrapolated: boolean
}

export function need(texts: number, key: Key = 'uuid', constants: Constants = CONSTANTS): Need {
  const { memoryBytes, cacheShare, diskBytes } = constants
  const { entry, wider, randomIndexes, rowsPerSecond, measuredTexts } = KEYS[key]
  const reads = randomIndexes * constants.indexReadsPerRow
  const secondsBeyond = 1 / rowsPerSecond + reads / constants.diskReadsPerSecond
  const indexBytes = texts * constants.indexEntryBytes
  const randomBytes = indexBytes + (randomIndexes > 1 ? texts * entry : 0)
  const dataBytes = texts * (constants.textBytes + constants.rowOverheadBytes + wider + entry)
  const cache = memoryBytes * cacheShare
  return {
    texts,
    dataBytes,
    indexBytes,
    randomBytes,
    nodes: Math.max(1, Math.ceil(randomBytes / cache), Math.ceil((indexBytes + dataBytes) / diskBytes)),
    rowsPerSecondOnOne: randomBytes <= cache ? rowsPerSecond : Math.round(1 / secondsBeyond),
    isExtrapolated: texts > measuredTexts,
  }
}

/** @throws for what is no amount, which would be computed as NaN */
export function amountOf(given: unknown): number {
  const amount = Number(given)
  if (!(amount > 0 && amount < Infinity))
    throw new Error(`${JSON.stringify(given)} is not a number above 0, such as 32e9.`)
  return amount
}

const GIGABYTE = 1e9

const line = ({ texts, dataBytes, indexBytes, randomBytes, nodes, rowsPerSecondOnOne, isExtrapolated }: Need): string =>
  [
    texts.toExponential(0),
    (dataBytes / GIGABYTE).toFixed(1),
    (indexBytes / GIGABYTE).toFixed(1),
    (randomBytes / GIGABYTE).toFixed(1),
    `${rowsPerSecondOnOne} (${isExtrapolated ? 'computed' : 'measured'})`,
    String(nodes),
  ].join(' | ')

if (require.main === module) {
  const options = Object.fromEntries(
    ['key', ...Object.keys(CONSTANTS)].map((name) => [name, { type: 'string' as const }]),
  )
  const { values, positionals } = parseArgs({ options, allowPositionals: true })
  const { key = 'uuid', ...given } = values
  if (key !== 'uuid' && key !== 'bigint') throw new Error('--key is uuid or bigint.')
  const own = Object.fromEntries(Object.entries(given).map(([name, value]) => [name, amountOf(value)] as const))
  const texts = positionals.length > 0 ? positionals.map(amountOf) : [1e6, 1e7, 1e8, 1e9, 1e10]
  console.log('texts | rows and key (GB) | unique index (GB) | random indexes (GB) | rows/s on one node | nodes')
  for (const one of texts) console.log(line(need(one, key, { ...CONSTANTS, ...own })))
}
