import 'reflect-metadata'
import { createHash } from 'node:crypto'
import { Client } from 'pg'
import { DataSource, type DataSourceOptions } from 'typeorm'
import { afterAll, beforeAll, beforeEach, expect, inject } from 'vitest'
import { type UniqueTextDataSourceOptions, withUniqueText } from '../../src'
import { qualified } from '../../src/sql/identifier'
import { createDatabase, dropDatabase, inDatabase } from './databases'

/** One database for one test file, made before its tests and dropped after them. */
export interface TestDatabase {
  readonly url: string
  /** A connected client, closed after the file's tests. */
  client(): Promise<Client>
  /** An initialised DataSource with `synchronize`, destroyed after the file's tests. */
  dataSource(
    entities: DataSourceOptions['entities'],
    options?: PostgresOptions,
    settings?: UniqueTextDataSourceOptions,
  ): Promise<DataSource>
  /**
   * Call at the top of a test file: a client that is connected before its tests.
   *
   * @param emptied whether the schema `public` is made anew before each of them
   */
  useClient(options?: { readonly emptied?: boolean }): Client
  /**
   * Call at the top of a test file: a DataSource that is initialised before its tests. Its tables are empty, and their
   * ids begin with 1, before each of them, unless `emptied` is false.
   */
  useDataSource(
    entities: DataSourceOptions['entities'],
    options?: PostgresOptions & { readonly emptied?: boolean },
    settings?: UniqueTextDataSourceOptions,
  ): DataSource
}

type PostgresOptions = Partial<Omit<Extract<DataSourceOptions, { type: 'postgres' }>, 'type'>>

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

  const newClient = (): Client => {
    const client = new Client({ connectionString: url })
    // A server that a test kills must not take the whole run with it; the failing query says what happened.
    client.on('error', () => {})
    clients.push(client)
    return client
  }
  const newDataSource: (...given: Parameters<TestDatabase['dataSource']>) => DataSource = (
    entities,
    options = {},
    settings,
  ) => {
    const dataSource = new DataSource({
      type: 'postgres',
      url,
      synchronize: true,
      entities: entities ?? [],
      ...options,
    })
    if (wrapped || settings) withUniqueText(dataSource, settings)
    dataSources.push(dataSource)
    return dataSource
  }
  return {
    url,
    client: async () => {
      const client = newClient()
      await client.connect()
      return client
    },
    dataSource: async (...given) => await newDataSource(...given).initialize(),
    useClient: ({ emptied = false } = {}) => {
      const client = newClient()
      beforeAll(() => client.connect())
      if (emptied) beforeEach(() => client.query('drop schema public cascade; create schema public'))
      return client
    },
    useDataSource: (entities, { emptied = true, ...options } = {}, settings) => {
      const dataSource = newDataSource(entities, options, settings)
      beforeAll(async () => void (await dataSource.initialize()))
      if (emptied) beforeEach(() => emptyTables(dataSource))
      return dataSource
    },
  }
}

async function emptyTables(dataSource: DataSource): Promise<void> {
  const tables = dataSource.entityMetadatas.filter(({ tableType }) => tableType !== 'view')
  const names = new Set(tables.map(({ schema, tableName }) => qualified(schema, tableName)))
  if (names.size > 0) await dataSource.query(`truncate ${[...names].join(', ')} restart identity cascade`)
}
