import { createDatabase, dropDatabase, inDatabase, serverVersion } from '../support/databases'
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
  await createDatabase(server.url, name)
  return {
    url: inDatabase(server.url, name),
    origin: `Postgres ${await serverVersion(server.url)} from ${server.origin}`,
    close: async () => {
      await dropDatabase(server.url, name)
      await server.stop()
    },
  }
}
