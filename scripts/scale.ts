/**
 * How many nodes, how much memory and how many rows a second a number of texts asks for, from constants each of which says
 * where it comes from. Put your own there: `npx tsx scripts/scale.ts 1e9 --textBytes 80 --memoryBytes 64e9`.
 */
import { parseArgs } from 'node:util'

/**
 * Bytes unless the name says otherwise. Sizes: 300,000 rows of a uuid and a text of 80 bytes, inserted by 1,000 into Postgres
 * 18.4, `pg_relation_size` by rows. Rates: maintainers/benchmark.md, "New rows in a table of so many", streams by their own choice.
 */
const CONSTANTS = {
  /** Of the average text. Yours. */
  textBytes: 80,
  /** Measured: 158 a row, less its text. */
  rowOverheadBytes: 78,
  /** Measured: of the unique index. */
  indexEntryBytes: 54,
  /** Measured: of the primary key. */
  keyEntryBytes: 39,
  /** Of one node. Yours. */
  memoryBytes: 32e9,
  /** Of the memory, what can hold index pages. Assumed: the rest is for rows, sessions and the system. */
  cacheShare: 0.5,
  /** Yours. */
  diskBytes: 2e12,
  /** Measured: into 100,000 rows, with an index of 8 MB. */
  rowsPerSecond: 30_600,
  /** Measured: into 5 million rows, whose index is twice the server's cache, while the system's cache holds it. */
  rowsPerSecondCached: 21_600,
  /** Measured there: 0.2 to 0.5 index pages a row are asked for, each a read where no cache holds it. */
  indexReadsPerRow: 0.5,
  /** Of the disk, at random. Assumed. */
  diskReadsPerSecond: 10_000,
  /** Of a node in a cluster, of the rate that it has alone. Measured by hand: 0.6 to 0.8 for batches, plain tables. */
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
  const { memoryBytes, cacheShare, diskBytes, rowsPerSecond, clusterShare } = constants
  const secondsBeyond = 1 / constants.rowsPerSecondCached + constants.indexReadsPerRow / constants.diskReadsPerSecond
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
    rowsPerSecondOnOne: isIndexInMemoryOnOne ? rowsPerSecond : Math.round(1 / secondsBeyond),
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
