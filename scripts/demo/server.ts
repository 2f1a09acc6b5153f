import path from 'node:path'
import type { DataSource } from 'typeorm'
import { loadDataSource } from '../../src/cli/terminal'
import { startEmbeddedPostgres } from '../embedded-postgres'

export const ROOT = path.join(__dirname, '../..')

/** The Postgres that the demo uses. */
export interface DemoServer {
  readonly url: string
  /** One line for the person who started the command. */
  readonly origin: string
  /** Ours: it ends with the last command that uses it. */
  readonly embedded: boolean
  readonly stop: () => Promise<void>
}

/** `DATABASE_URL`, or else a server of our own whose data are kept in `.data/`. */
export async function openServer(): Promise<DemoServer> {
  const given = process.env['DATABASE_URL']
  if (given) return { url: given, origin: 'Postgres: DATABASE_URL', embedded: false, stop: async () => {} }
  const server = await startEmbeddedPostgres({ dataFolder: path.join(ROOT, '.data', 'postgres'), handlesSigint: true })
  const folder = path.relative(ROOT, server.dataFolder)
  const where = folder.startsWith('..') ? `${server.dataFolder} (the server's user may not enter this folder)` : folder
  const state = server.shared ? 'shared with another command that runs' : 'started'
  return {
    url: server.url,
    origin: `Postgres: embedded, ${state}, data in ${where}, port ${server.port}`,
    embedded: true,
    stop: server.stop,
  }
}

/** This repository's DataSource, connected to the server. */
export async function connect(server: DemoServer): Promise<DataSource> {
  process.chdir(ROOT)
  process.env['DATABASE_URL'] = server.url
  const dataSource = await loadDataSource('ormconfig.ts')
  return await dataSource.initialize()
}
