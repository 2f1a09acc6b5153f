import { execFileSync } from 'node:child_process'
import { readdirSync, rmSync } from 'node:fs'
import path from 'node:path'
import { startEmbeddedPostgres } from './embedded-postgres'

// Makes the committed migration anew, as the TypeORM command line generates it for an empty database. Its timestamp
// and name stay, for it is compared with what is generated, and no database has run it.
const FOLDER = 'migrations'

async function main(): Promise<void> {
  const [file] = readdirSync(FOLDER)
  const [, timestamp, name] = /^(\d+)-(\w+)\.ts$/.exec(file ?? '') ?? []
  if (file === undefined || timestamp === undefined || name === undefined) throw new Error(`No migration in ${FOLDER}.`)
  const server = await startEmbeddedPostgres()
  try {
    rmSync(path.join(FOLDER, file))
    const generate = ['migration:generate', '-d', 'ormconfig.ts', '-t', timestamp, path.join(FOLDER, name)]
    run(['--import', 'tsx', 'node_modules/typeorm/cli.js', ...generate], { DATABASE_URL: server.url })
    run(['node_modules/oxfmt/bin/oxfmt', FOLDER], {})
  } finally {
    await server.stop()
  }
}

function run(args: readonly string[], env: Readonly<Record<string, string>>): void {
  execFileSync(process.execPath, args, { stdio: 'inherit', env: { ...process.env, ...env } })
}

void main()
