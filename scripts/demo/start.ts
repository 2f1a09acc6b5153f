/**
 * The main job, end to end: a list of URLs becomes unique rows in Postgres.
 *
 *     npm start               examples/urls.txt
 *     npm start -- FILE       another list
 *     npm start -- -          standard input
 *
 * DATABASE_URL names another server than the embedded one. Run it again: everything is found, nothing is created.
 */
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import { findTarget } from '../../src/cli/import-target'
import { type List, openList } from '../../src/cli/list'
import { runImport } from '../../src/cli/run-import'
import { connect, type ExampleServer, ROOT } from './server'
import { runExample } from './run-demo'

const [name, ...more] = process.argv.slice(2)

async function start(server: ExampleServer, signal: AbortSignal, list: List): Promise<number> {
  const dataSource = await connect(server)
  try {
    const migrations = await dataSource.runMigrations()
    console.log(migrations.length > 0 ? `Migrations run: ${migrations.length}` : 'Migrations: nothing to run')
    console.log(`Importing ${name ?? 'examples/urls.txt'}\n`)
    const target = findTarget(dataSource, { entity: 'Url' })
    const code = await runImport({ dataSource, target, list, streams: process, signal, unit: 'URLs' })
    if (code === 0) console.log(`\nSee the rows: ${commands(server).join('\n          or: ')}`)
    return code
  } finally {
    // After Ctrl-C the server may be gone.
    await dataSource.destroy().catch(() => {})
  }
}

function commands({ embedded }: ExampleServer): string[] {
  const psql = spawnSync('psql', ['--version']).status === 0
  if (embedded) return ['npm run show', ...(psql ? ['npm run show -- --psql'] : [])]
  return ['npm run show', ...(psql ? ['psql "$DATABASE_URL" -c "SELECT * FROM urls LIMIT 20"'] : [])]
}

async function main(): Promise<void> {
  if (more.length > 0 || (name !== undefined && /^-./.test(name))) {
    console.error('Usage: npm start, npm start -- FILE, or npm start -- -')
    process.exit(2)
  }
  // npm runs us in the package's folder, wherever the person stands.
  const typed = name === undefined || name === '-' ? name : path.resolve(process.env['INIT_CWD'] ?? '', name)
  // Before the server, so that a wrong name costs no time.
  const list = await openList(typed ?? path.join(ROOT, 'examples', 'urls.txt'))
  await runExample(async (server, signal) => await start(server, signal, list))
}

main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error)
  process.exit(1)
})
