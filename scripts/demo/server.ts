import path from 'node:path'
import type { DataSource } from 'typeorm'
import { loadDataSource } from '../../src/cli/load-data-source'
import { startEmbeddedPostgres } from '../embedded-postgres'

export const ROOT = path.join(__dirname, '../..')

/** The Postgres that the examples use. */
export interface ExampleServer {
  readonly url: string
  /** One line for the person who started it. */
  readonly origin: string
  /** Ours: it ends with the command. */
  readonly embedded: boolean
  readonly stop: () => Promise<void>
}

/** `DATABASE_URL`, else a server of our own whose data are kept in `.data/`. */
export async function openServer(): Promise<ExampleServer> {
  const given = process.env['DATABASE_URL']
  if (given) return { url: given, origin: 'Postgres: DATABASE_URL', embedded: false, stop: async () => {} }
  const server = await startEmbeddedPostgres({
    dataFolder: path.join(ROOT, '.data', 'postgres'),
    reuse: true,
    handlesSigint: true,
  })
  const folder = path.relative(ROOT, server.dataFolder)
  const place = folder.startsWith('..') ? `${server.dataFolder} (its user may not enter this folder)` : folder
  const state = server.reused ? `runs already as process ${server.pid}, and goes on` : 'ends with this command'
  return {
    url: server.url,
    origin: `Postgres: embedded, data in ${place}, port ${server.port}; it ${state}`,
    embedded: true,
    stop: server.stop,
  }
}

/** This repository's DataSource, connected to the server. */
export async function connect(server: ExampleServer): Promise<DataSource> {
  process.chdir(ROOT)
  process.env['DATABASE_URL'] = server.url
  const dataSource = await loadDataSource('ormconfig.ts')
  return await dataSource.initialize()
}
