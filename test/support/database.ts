import 'reflect-metadata'
import { createHash } from 'node:crypto'
import { Client } from 'pg'
import { DataSource, type DataSourceOptions } from 'typeorm'
import { afterAll, beforeAll, expect, inject } from 'vitest'
import { withUniqueText } from '../../src'

/** One database for one test file, made before its tests and dropped after them. */
export interface TestDatabase {
  readonly url: string
  /** A connected client, closed after the file's tests. */
  client(): Promise<Client>
  /** An initialised DataSource with our hook and `synchronize`, destroyed after the file's tests. */
  dataSource(
    entities: DataSourceOptions['entities'],
    options?: Partial<Omit<Extract<DataSourceOptions, { type: 'postgres' }>, 'type'>>,
  ): Promise<DataSource>
}

export interface TestDatabaseOptions {
  /** @default 'UTF8' */
  readonly encoding?: string
  /** Extensions to install. @default [] */
  readonly extensions?: readonly string[]
}

/** Call at the top of a test file. The name has a space and a capital, so that an unquoted identifier fails at once. */
export function useDatabase({ encoding = 'UTF8' }: TestDatabaseOptions = {}): TestDatabase {
  const serverUrl = inject('serverUrl')
  const file = expect.getState().testPath ?? ''
  const name = `T ${createHash('sha256').update(`${file}${process.pid}`).digest('hex').slice(0, 12)}`
  const url = new URL(serverUrl)
  url.pathname = `/${encodeURIComponent(name)}`
  const clients: Client[] = []
  const dataSources: DataSource[] = []

  beforeAll(async () => {
    await onServer(serverUrl, `drop database if exists "${name}" with (force)`)
    await onServer(serverUrl, `create database "${name}" template template0 encoding '${encoding}' locale 'C'`)
  })
  afterAll(async () => {
    await Promise.all(dataSources.map(async (dataSource) => dataSource.isInitialized && (await dataSource.destroy())))
    await Promise.all(clients.map((client) => client.end()))
    await onServer(serverUrl, `drop database if exists "${name}" with (force)`)
  })

  return {
    url: url.href,
    client: async () => {
      const client = new Client({ connectionString: url.href })
      // A server that a test kills must not take the whole run with it; the failing query says what happened.
      client.on('error', () => {})
      await client.connect()
      clients.push(client)
      return client
    },
    dataSource: async (entities, options = {}) => {
      const dataSource = withUniqueText(
        new DataSource({ type: 'postgres', url: url.href, synchronize: true, entities: entities ?? [], ...options }),
      )
      dataSources.push(dataSource)
      return await dataSource.initialize()
    },
  }
}

async function onServer(url: string, sql: string): Promise<void> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    await client.query(sql)
  } finally {
    await client.end()
  }
}
