import { DataSource } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { UnsupportedDatabaseError, withUniqueText } from '../../../src'
import { requireServer } from '../../../src/typeorm/supported'

const dataSource = (): DataSource => new DataSource({ type: 'postgres' })

/** Makes a method of TypeORM's look as if its version did not have it. */
function without(object: object, name: string): void {
  Object.defineProperty(object, name, { value: undefined, configurable: true })
}

describe('an internal of TypeORM that is gone is named in one clear error', () => {
  test.each(['setOptions', 'createQueryRunner'])('DataSource.%s', (name) => {
    const one = dataSource()
    without(one, name)
    expect(() => withUniqueText(one)).toThrow(UnsupportedDatabaseError)
    expect(() => withUniqueText(one)).toThrow(`TypeORM has no DataSource.${name},`)
  })
  test.each(['createSchemaBuilder', 'normalizeType', 'getColumnLength'])('PostgresDriver.%s', (name) => {
    const one = dataSource()
    without(one.driver, name)
    expect(() => withUniqueText(one)).toThrow(`TypeORM has no PostgresDriver.${name},`)
  })
  test.each(['executeSchemaSyncOperationsInProperOrder', 'getTablePath'])('RdbmsSchemaBuilder.%s', (name) => {
    const one = dataSource()
    const create = one.driver.createSchemaBuilder.bind(one.driver)
    one.driver.createSchemaBuilder = () => {
      const builder = create()
      without(builder, name)
      return builder
    }
    withUniqueText(one)
    expect(() => one.driver.createSchemaBuilder()).toThrow(`TypeORM has no RdbmsSchemaBuilder.${name},`)
  })
  test.each(['executeQueries', 'getMemorySql', 'loadedTables', 'sqlMemoryMode'])(
    'PostgresQueryRunner.%s',
    async (name) => {
      const one = withUniqueText(dataSource())
      Object.assign(one.driver, { searchSchema: 'public' })
      const builder: unknown = one.driver.createSchemaBuilder()
      const queryRunner = one.createQueryRunner()
      without(queryRunner, name)
      await expect(synchronize(builder, queryRunner)).rejects.toThrow(`TypeORM has no PostgresQueryRunner.${name},`)
    },
  )
  test('PostgresDriver.searchSchema', async () => {
    const one = withUniqueText(dataSource())
    const builder: unknown = one.driver.createSchemaBuilder()
    const failed = synchronize(builder, one.createQueryRunner())
    await expect(failed).rejects.toThrow('TypeORM has no PostgresDriver.searchSchema,')
  })
})

async function synchronize(builder: unknown, queryRunner: unknown): Promise<void> {
  const inner = builder as { queryRunner: unknown; executeSchemaSyncOperationsInProperOrder(): Promise<void> }
  inner.queryRunner = queryRunner
  await inner.executeSchemaSyncOperationsInProperOrder()
}

const server = { encoding: 'UTF8', version: 140_000, quotesAll: false }

test('a server before PostgreSQL 14 is refused with the version that is needed', () => {
  expect(() => requireServer(server)).not.toThrow()
  expect(() => requireServer({ ...server, version: 130_014 })).toThrow(/PostgreSQL 13, .* needs 14 or later/)
  expect(() => requireServer({ ...server, version: 130_014 })).toThrow(UnsupportedDatabaseError)
})

test.each(['SQL_ASCII', 'LATIN1', 'EUC_JP'])('a database of the encoding %s is refused', (encoding) => {
  expect(() => requireServer({ ...server, encoding })).toThrow(`The database's encoding is ${encoding}`)
})
