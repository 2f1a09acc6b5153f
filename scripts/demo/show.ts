/**
 * Shows what `npm start` has stored.
 *
 *     npm run show               counts and some rows
 *     npm run show -- --psql     psql on the server, while it runs
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { formatUrl, type UrlParts } from '../../src/url'
import { runExample } from './run-demo'
import { connect, type ExampleServer } from './server'

const COLUMNS = process.stdout.columns ?? 120

interface Counts {
  readonly rows: string
  readonly hosts: string
  readonly longest: number | null
  readonly chained: string
}

interface Row extends UrlParts {
  readonly id: string
  readonly hash: string
  readonly number: number
}

/** A full look at the table, which is what an example may afford. */
const COUNTS = `
  SELECT count(*) AS rows, count(DISTINCT host) AS hosts, count(*) FILTER (WHERE hash_number > 0) AS chained,
         max(octet_length(path) + coalesce(octet_length(query), 0) + coalesce(octet_length(fragment), 0)) AS longest
  FROM urls`

/** The colliding ones first: they are what is special. */
const ROWS = `
  SELECT id, scheme, host, port, path, query, fragment, path_component_hash AS hash, hash_number AS number
  FROM urls ORDER BY hash_chained OR hash_number > 0 DESC, id LIMIT 20`

async function show(server: ExampleServer): Promise<number> {
  const dataSource = await connect(server)
  try {
    const [counts] = await dataSource.query<Counts[]>(COUNTS)
    if (!counts) return 1
    console.log(`\n${counts.rows} URLs of ${counts.hosts} hosts; the longest has ${counts.longest ?? 0} bytes.`)
    console.log(`${counts.chained} of them share their MD5 with another one, and have a hash number of 1 or more.\n`)
    const rows = await dataSource.query<Row[]>(ROWS)
    console.log(`${'id'.padStart(7)}  ${'hash'.padEnd(36)}  number  URL`)
    for (const row of rows) {
      const line = `${row.id.padStart(7)}  ${row.hash}  ${String(row.number).padStart(6)}  ${formatUrl(row)}`
      console.log(line.length > COLUMNS ? `${line.slice(0, COLUMNS - 1)}…` : line)
    }
    return 0
  } finally {
    await dataSource.destroy().catch(() => {})
  }
}

async function psql({ url }: ExampleServer): Promise<number> {
  // Ctrl-C is psql's own while it runs.
  process.removeAllListeners('SIGINT')
  process.on('SIGINT', () => {})
  const child = spawn('psql', [url], { stdio: 'inherit' })
  const [code] = (await once(child, 'close')) as [number | null]
  return code ?? 1
}

void runExample(async (server) => await (process.argv.includes('--psql') ? psql(server) : show(server)))
