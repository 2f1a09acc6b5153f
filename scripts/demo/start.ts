/**
 * The main job, end to end: a list of URLs becomes unique rows in Postgres.
 *
 *     npm start               examples/urls.txt
 *     npm start -- FILE       another list
 *     npm start -- -          standard input
 *
 * DATABASE_URL names a server to use instead of the embedded one. Run it again: everything is found, nothing is created.
 */
import '../../src/cli/node-version'
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import type { DataSource } from 'typeorm'
import { describeError } from '../../src/cli/terminal'
import { runImport } from '../../src/cli/import'
import { type List, openList } from '../../src/cli/list'
import { connect, type DemoServer, ROOT } from './server'
import { runDemo } from './run-demo'

const MIGRATION_LOCK = 20_260_101

/** As in `typeorm-unique-text import --entity Url`. */
const IMPORT = {
  entity: 'Url',
  records: undefined,
  set: new Map<string, string>(),
  dryRun: false,
  rejected: undefined,
  strict: false,
  json: false,
} as const

const [name, ...more] = process.argv.slice(2)

async function start(server: DemoServer, signal: AbortSignal, list: List): Promise<number> {
  const dataSource = await connect(server)
  try {
    const migrations = await migrate(dataSource)
    console.log(migrations > 0 ? `Migrations run: ${migrations}` : 'Migrations: nothing to run')
    console.log(`Importing ${name ?? 'examples/urls.txt'}\n`)
    const code = await runImport({ dataSource, invocation: IMPORT, streams: process, signal }, list)
    if (code === 0) console.log(`\nSee the rows: ${commands(server).join('\n          or: ')}`)
    return code
  } finally {
    // An external server may be gone.
    await dataSource.destroy().catch(() => {})
  }
}

/** One command at a time: TypeORM does not expect another one that runs the same migrations. */
async function migrate(dataSource: DataSource): Promise<number> {
  const runner = dataSource.createQueryRunner()
  try {
    await runner.query('SELECT pg_advisory_lock($1)', [MIGRATION_LOCK])
    return (await dataSource.runMigrations()).length
  } finally {
    // A connection that is lost holds no lock.
    await runner.query('SELECT pg_advisory_unlock($1)', [MIGRATION_LOCK]).catch(() => {})
    await runner.release()
  }
}

function commands({ embedded }: DemoServer): string[] {
  const psql = spawnSync('psql', ['--version']).status === 0
  if (embedded) return ['npm run show', ...(psql ? ['npm run show -- --psql'] : [])]
  return ['npm run show', ...(psql ? ['psql "$DATABASE_URL" -c "SELECT * FROM urls LIMIT 20"'] : [])]
}

async function main(): Promise<void> {
  if (more.length > 0 || (name !== undefined && /^-./.test(name))) {
    console.error('Usage: npm start, npm start -- FILE, or npm start -- -')
    process.exit(2)
  }
  // npm runs us in the package's folder, whatever folder the person is in.
  const typed = name === undefined || name === '-' ? name : path.resolve(process.env['INIT_CWD'] ?? '', name)
  // Before the server starts, so that a wrong name is reported at once.
  const list = await openList(typed ?? path.join(ROOT, 'examples', 'urls.txt'))
  await runDemo(async (server, signal) => await start(server, signal, list))
}

main().catch((error: unknown) => {
  console.error(describeError(error))
  process.exit(1)
})
