import { Client } from 'pg'
import { sources } from '../support/postgres'

/** A database of our own on some server. */
export interface StressDatabase {
  readonly url: string
  /** In words, with the server's version. */
  readonly origin: string
  /** Drops the database, and stops the server if it is ours. */
  close(): Promise<void>
}

export async function openDatabase(): Promise<StressDatabase> {
  const given = process.env['STRESS_DATABASE_URL']
  const server = given
    ? { url: given, origin: 'STRESS_DATABASE_URL', stop: async () => {} }
    : ((await sources.environment()) ?? (await sources.embedded()))
  if (!server) throw new Error('No Postgres: set STRESS_DATABASE_URL, or run `npm ci` again.')
  const name = `unique text stress ${process.pid} ${Date.now()}`
  const url = new URL(server.url)
  url.pathname = `/${encodeURIComponent(name)}`
  const version = await onServer(server.url, `SELECT current_setting('server_version') AS version`)
  await onServer(server.url, `CREATE DATABASE "${name}" TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'`)
  return {
    url: url.href,
    origin: `Postgres ${version} from ${server.origin}`,
    close: async () => {
      await onServer(server.url, `DROP DATABASE IF EXISTS "${name}" WITH (FORCE)`)
      await server.stop()
    },
  }
}

/** Runs a statement and gives the column `version` of its first row, if there is one. */
async function onServer(url: string, sql: string): Promise<string | undefined> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query<{ version: string }>(sql)).rows[0]?.version
  } finally {
    await client.end()
  }
}
