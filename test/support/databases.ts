import { Client } from 'pg'
import { literal, quote } from '../../src/sql/identifier'
import { serverError } from '../../src/sql/sqlstate'

/** Runs a statement on a connection of its own. */
export async function runOnce(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query<Record<string, unknown>>(sql)).rows
  } finally {
    await client.end()
  }
}

/** The locale is `C` on every machine, or orders and messages would depend on it. */
export async function createDatabase(serverUrl: string, name: string, encoding = 'UTF8'): Promise<void> {
  const how = `template template0 encoding ${literal(encoding)} locale 'C'`
  await runOnce(serverUrl, `create database ${quote(name)} ${how}`)
}

/**
 * A pool reports its end before its connections have ended. The server waits some seconds for them: an end by force
 * would be an error of the pool, which nobody hears any more.
 */
export async function dropDatabase(serverUrl: string, name: string): Promise<void> {
  const drop = `drop database if exists ${quote(name)}`
  await runOnce(serverUrl, drop).catch(async (error: unknown) => {
    if (serverError(error)?.code !== '55006') throw error
    await runOnce(serverUrl, `${drop} with (force)`)
  })
}

/** Drops every schema, `public` too, with all that is in it. */
export async function dropSchemas(client: Client): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `select nspname as name from pg_namespace where nspname !~ '^pg_|^information_schema$'`,
  )
  for (const { name } of rows) await client.query(`drop schema ${quote(name)} cascade`)
}

/** The connection string of another database of the same server. */
export function inDatabase(serverUrl: string, name: string): string {
  const url = new URL(serverUrl)
  url.pathname = `/${encodeURIComponent(name)}`
  return url.href
}

/** `18.4`, for instance. */
export async function serverVersion(url: string): Promise<string> {
  const [row] = await runOnce(url, `select current_setting('server_version') as version`)
  return String(row?.['version'])
}

/** Runs a MERGE. @returns false where the server does not know the statement, as Postgres 14 */
export async function merge(client: Pick<Client, 'query'>, sql: string): Promise<boolean> {
  try {
    await client.query(sql)
    return true
  } catch (error) {
    const { rows } = await client.query<{ old: boolean }>(
      `select current_setting('server_version_num')::integer < 150000 as old`,
    )
    if (serverError(error)?.code === '42601' && rows[0]?.old === true) return false
    throw error
  }
}
