import 'reflect-metadata'
import { createHash } from 'node:crypto'
import { Client } from 'pg'
import { DataSource, type DataSourceOptions } from 'typeorm'
import { afterAll, beforeAll, expect, inject } from 'vitest'
import { type UniqueTextDataSourceOptions, withUniqueText } from '../../src'
import { createDatabase, dropDatabase, inDatabase } from './databases'

/** One database for one test file, made before its tests and dropped after them. */
export interface TestDatabase {
  readonly url: string
  /** A connected client, closed after the file's tests. */
  client(): Promise<Client>
  /** An initialised DataSource with `synchronize`, destroyed after the file's tests. */
  dataSource(
    entities: DataSourceOptions['entities'],
    options?: Partial<Omit<Extract<DataSourceOptions, { type: 'postgres' }>, 'type'>>,
    settings?: UniqueTextDataSourceOptions,
  ): Promise<DataSource>
}

export interface TestDatabaseOptions {
  /** @default 'UTF8' */
  readonly encoding?: string
  /** Its DataSources are given to `withUniqueText`: an entity of the tests has lost its last declaration. */
  readonly wrapped?: boolean
}

/** Call at the top of a test file. The name has a space and a capital, so that an unquoted identifier fails at once. */
export function useDatabase({ encoding = 'UTF8', wrapped = false }: TestDatabaseOptions = {}): TestDatabase {
  const serverUrl = inject('serverUrl')
  const file = expect.getState().testPath ?? ''
  const name = `T ${createHash('sha256').update(`${file}${process.pid}`).digest('hex').slice(0, 12)}`
  const url = inDatabase(serverUrl, name)
  const clients: Client[] = []
  const dataSources: DataSource[] = []

  beforeAll(async () => {
    await dropDatabase(serverUrl, name)
    await createDatabase(serverUrl, name, encoding)
  })
  afterAll(async () => {
    await Promise.all(dataSources.map(async (dataSource) => dataSource.isInitialized && (await dataSource.destroy())))
    await Promise.all(clients.map((client) => client.end()))
    await dropDatabase(serverUrl, name)
  })

  return {
    url,
    client: async () => {
      const client = new Client({ connectionString: url })
      // A server that a test kills must not take the whole run with it; the failing query says what happened.
      client.on('error', () => {})
      await client.connect()
      clients.push(client)
      return client
    },
    dataSource: async (entities, options = {}, settings) => {
      const dataSource = new DataSource({
        type: 'postgres',
        url,
        synchronize: true,
        entities: entities ?? [],
        ...options,
      })
      if (wrapped || settings) withUniqueText(dataSource, settings)
      dataSources.push(dataSource)
      return await dataSource.initialize()
    },
  }
}
