/**
 * Shows what `npm start` has stored.
 *
 *     npm run show               counts and some rows
 *     npm run show -- --psql     psql on the server, while it runs
 */
import '../../src/cli/node-version'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { formatUrl, type UrlParts } from '../../src/url'
import { printable } from '../../src/cli/terminal'
import { runDemo } from './run-demo'
import { connect, type DemoServer } from './server'

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

/** Reads the whole table, which a demo can afford. */
const COUNTS = `
  SELECT count(*) AS rows, count(DISTINCT host) AS hosts, count(*) FILTER (WHERE hash_number > 0) AS chained,
         max(octet_length(path) + coalesce(octet_length(query), 0) + coalesce(octet_length(fragment), 0)) AS longest
  FROM urls`

/** The colliding ones first, since they are what is special. */
const ROWS = `
  SELECT id, scheme, host, port, path, query, fragment, path_component_hash AS hash, hash_number AS number
  FROM urls ORDER BY hash_chained OR hash_number > 0 DESC, id LIMIT 20`

async function show(server: DemoServer): Promise<number> {
  const dataSource = await connect(server)
  try {
    const [counts] = await dataSource.query<Counts[]>(COUNTS)
    if (!counts) return 1
    console.log(`\n${counts.rows} URLs of ${counts.hosts} hosts; the longest has ${counts.longest ?? 0} bytes.`)
    console.log(`${counts.chained} of them share their MD5 with another one, and have a hash number of 1 or more.\n`)
    const rows = await dataSource.query<Row[]>(ROWS)
    console.log(`${'id'.padStart(7)}  ${'hash'.padEnd(36)}  number  URL`)
    for (const row of rows) {
      const line = `${row.id.padStart(7)}  ${row.hash}  ${String(row.number).padStart(6)}  ${printable(formatUrl(row))}`
      console.log(line.length > COLUMNS ? `${line.slice(0, COLUMNS - 1)}…` : line)
    }
    return 0
  } finally {
    await dataSource.destroy().catch(() => {})
  }
}

async function psql({ url }: DemoServer): Promise<number> {
  // Ctrl-C belongs to psql while it runs.
  process.removeAllListeners('SIGINT')
  process.on('SIGINT', () => {})
  // Every user of the machine can read a process's arguments.
  const withoutPassword = new URL(url)
  const PGPASSWORD = decodeURIComponent(withoutPassword.password)
  withoutPassword.password = ''
  const env = { ...process.env, ...(PGPASSWORD && { PGPASSWORD }) }
  const child = spawn('psql', [withoutPassword.href], { stdio: 'inherit', env })
  const [code] = (await once(child, 'close')) as [number | null]
  return code ?? 1
}

void runDemo(async (server) => await (process.argv.includes('--psql') ? psql(server) : show(server)))
