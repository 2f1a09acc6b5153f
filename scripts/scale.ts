/**
 * How many nodes, how much memory and how many rows a second a number of texts asks for, from constants that are estimates:
 * sizes were computed by hand, rates were assumed. Put your own measurements there: `npx tsx scripts/scale.ts 1e9 --textBytes 80 --memoryBytes 64e9`.
 */
import { parseArgs } from 'node:util'

/** Bytes unless the name says otherwise. Those of rows and entries follow from Postgres' page layout; the rates are assumptions. */
const CONSTANTS = {
  /** Of the average text. */
  textBytes: 80,
  /** Header, line pointer, an id of 16 bytes, hash, number, flag and padding. */
  rowOverheadBytes: 76,
  /** Of the unique index: a tuple of 16 bytes hash and 4 bytes number, at 70 % of a page, as random inserts leave it. */
  indexEntryBytes: 52,
  /** Of the primary key: a uuid, likewise. */
  keyEntryBytes: 40,
  /** Of one node. */
  memoryBytes: 32e9,
  /** Of the memory, what can hold index pages. */
  cacheShare: 0.5,
  diskBytes: 2e12,
  /** New rows a second on one node while its unique index is in memory, and beyond. */
  rowsPerSecond: 20_000,
  rowsPerSecondBeyond: 4_000,
  /** Of a node in a cluster, of the rate that it has alone. */
  clusterShare: 0.7,
}

type Constants = typeof CONSTANTS

interface Need {
  readonly texts: number
  readonly dataBytes: number
  readonly indexBytes: number
  /** So many that the unique index is in memory, and everything on disk. */
  readonly nodes: number
  readonly isIndexInMemoryOnOne: boolean
  readonly rowsPerSecondOnOne: number
  readonly rowsPerSecond: number
}

export function need(texts: number, constants: Constants = CONSTANTS): Need {
  const { memoryBytes, cacheShare, diskBytes, rowsPerSecond, rowsPerSecondBeyond, clusterShare } = constants
  const indexBytes = texts * constants.indexEntryBytes
  const dataBytes = texts * (constants.textBytes + constants.rowOverheadBytes + constants.keyEntryBytes)
  const cache = memoryBytes * cacheShare
  const nodes = Math.max(1, Math.ceil(indexBytes / cache), Math.ceil((indexBytes + dataBytes) / diskBytes))
  const isIndexInMemoryOnOne = indexBytes <= cache
  return {
    texts,
    dataBytes,
    indexBytes,
    nodes,
    isIndexInMemoryOnOne,
    rowsPerSecondOnOne: isIndexInMemoryOnOne ? rowsPerSecond : rowsPerSecondBeyond,
    rowsPerSecond: nodes === 1 ? rowsPerSecond : Math.round(nodes * rowsPerSecond * clusterShare),
  }
}

const GIGABYTE = 1e9

const tell = ({ texts, dataBytes, indexBytes, nodes, ...rates }: Need): string =>
  [
    texts.toExponential(0),
    (dataBytes / GIGABYTE).toFixed(1),
    (indexBytes / GIGABYTE).toFixed(1),
    String(rates.rowsPerSecondOnOne),
    String(nodes),
    String(rates.rowsPerSecond),
  ].join(' | ')

if (require.main === module) {
  const options = Object.fromEntries(Object.keys(CONSTANTS).map((name) => [name, { type: 'string' as const }]))
  const { values, positionals } = parseArgs({ options, allowPositionals: true })
  const given = Object.entries(values).map(([name, value]) => [name, Number(value)] as const)
  const constants = { ...CONSTANTS, ...Object.fromEntries(given) }
  const texts = positionals.length > 0 ? positionals.map(Number) : [1e6, 1e7, 1e8, 1e9, 1e10]
  console.log('texts | rows and key (GB) | unique index (GB) | rows/s on one node | nodes | rows/s on these')
  for (const one of texts) console.log(tell(need(one, constants)))
}
