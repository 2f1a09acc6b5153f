import { DataSource, type EntityMetadata, EntitySchema } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { UnsupportedDatabaseError, uniqueTextSchema, withUniqueText } from '../../../src'
import { INTERNALS, requireInternals, requirePostgres, requireServer } from '../../../src/registry/internals'

const Page = new EntitySchema(
  uniqueTextSchema<{ id: number; parent: unknown }>(
    {
      name: 'Page',
      columns: { id: { type: Number, primary: true } },
      relations: { parent: { type: 'many-to-one', target: 'Page' } },
    },
    { url: {} },
  ),
)

/** As after `connect()`, with one query runner, one schema builder and one query builder for all who ask. */
function connected(): DataSource {
  const dataSource = new DataSource({ type: 'postgres', entities: [Page] })
  const { driver } = dataSource
  const [builder, queryRunner] = [driver.createSchemaBuilder(), dataSource.createQueryRunner()]
  driver.createSchemaBuilder = () => builder
  const queryBuilder = dataSource.createQueryBuilder()
  dataSource.createQueryRunner = () => queryRunner
  dataSource.createQueryBuilder = () => queryBuilder
  const updateBuilder = queryBuilder.update()
  queryBuilder.update = () => updateBuilder
  return Object.assign(dataSource, { driver: Object.assign(driver, { searchSchema: 'public' }) })
}

/** The objects of TypeORM in which we look for its internals, by class. */
const OBJECTS: Record<keyof typeof INTERNALS, (dataSource: DataSource) => object> = {
  DataSource: (dataSource) => dataSource,
  PostgresDriver: ({ driver }) => driver,
  RdbmsSchemaBuilder: ({ driver }) => driver.createSchemaBuilder(),
  PostgresQueryRunner: (dataSource) => dataSource.createQueryRunner(),
  Broadcaster: (dataSource) => dataSource.createQueryRunner().broadcaster,
  SelectQueryBuilder: (dataSource) => dataSource.createQueryBuilder(),
  UpdateQueryBuilder: (dataSource) => dataSource.createQueryBuilder().update(),
  QueryExpressionMap: (dataSource) => dataSource.createQueryBuilder().expressionMap,
}

/** Those that exist only while metadata is built: TypeORM shows them by calling us. */
const METADATA: Record<string, (index: EntityMetadata['indices'][number]) => object> = {
  IndexMetadata: (index) => index,
  EntityMetadata: ({ entityMetadata }) => entityMetadata,
  ColumnMetadata: ({ entityMetadata }) => entityMetadata.columns[0] ?? {},
  RelationMetadata: ({ entityMetadata }) => entityMetadata.relations[0] ?? {},
}

/** Makes a part of TypeORM's look as if its version did not have it. */
function remove(object: object, name: string): void {
  Reflect.deleteProperty(object, name)
  if (name in object) Object.defineProperty(object, name, { value: undefined, configurable: true })
}

async function buildMetadata(dataSource: DataSource): Promise<void> {
  await (dataSource as unknown as { buildMetadatas(): Promise<void> }).buildMetadatas()
}

const parts = Object.entries(INTERNALS).flatMap(([owner, kinds]) =>
  Object.values(kinds).flatMap((names) => names.map((name) => [owner, name] as const)),
)

describe('an internal of TypeORM that is gone is named at first use', () => {
  test('and none is missing in this version', async () => {
    await expect(buildMetadata(connected())).resolves.toBeUndefined()
  })

  test.each(parts.filter(([owner]) => owner in OBJECTS))('%s.%s', (owner, name) => {
    const dataSource = connected()
    remove(OBJECTS[owner]?.(dataSource) ?? {}, name)
    expect(() => requireInternals(dataSource)).toThrow(UnsupportedDatabaseError)
    expect(() => requireInternals(dataSource)).toThrow(`TypeORM has no ${owner}.${name},`)
  })

  test.each(parts.filter(([owner]) => !(owner in OBJECTS)))('%s.%s', async (owner, name) => {
    const dataSource = connected()
    dataSource.setOptions({ entities: [pageWithout(owner, name)] })
    await expect(buildMetadata(dataSource)).rejects.toThrow(`TypeORM has no ${owner}.${name},`)
  })

  test('before metadata is built, and before a schema is', async () => {
    const dataSource = withUniqueText(connected())
    remove(dataSource.driver, 'normalizeType')
    await expect(buildMetadata(dataSource)).rejects.toThrow('TypeORM has no PostgresDriver.normalizeType,')
    expect(() => dataSource.driver.createSchemaBuilder()).toThrow('TypeORM has no PostgresDriver.normalizeType,')
  })

  test('and by withUniqueText() where there is nothing to hook', () => {
    const dataSource = connected()
    remove(dataSource.driver, 'createSchemaBuilder')
    expect(() => withUniqueText(dataSource)).toThrow('TypeORM has no PostgresDriver.createSchemaBuilder,')
  })
})

/** The part is gone just before TypeORM asks for the columns of our index. */
function pageWithout(owner: string, name: string): EntitySchema {
  const [index, ...others] = Page.options.indices ?? []
  const columns = function (this: EntityMetadata['indices'][number]): unknown {
    remove(METADATA[owner]?.(this) ?? {}, name)
    return Reflect.apply(index?.columns as () => unknown, this, [])
  }
  return new EntitySchema({
    name: 'Page',
    columns: Page.options.columns,
    relations: Page.options.relations ?? {},
    indices: [{ ...index, columns: columns as () => string[] }, ...others],
  })
}

const server = {
  encoding: 'UTF8',
  version: 140_000,
  engine: 'PostgreSQL 14.10 on x86_64-pc-linux-gnu, compiled by gcc',
  plpgsql: true,
  quotesAll: false,
  replica: false,
}

test('a server before PostgreSQL 14 is refused with the version that is needed', () => {
  expect(() => requireServer(server, true)).not.toThrow()
  expect(() => requireServer({ ...server, version: 130_014 }, true)).toThrow(/PostgreSQL 13, .* needs 14 or later/)
  expect(() => requireServer({ ...server, version: 130_014 }, true)).toThrow(UnsupportedDatabaseError)
})

test.each(['PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64', 'CockroachDB CCL v25.4.0 (x86_64-pc-linux-gnu)'])(
  'the engine %s is refused, with its name',
  (engine) => {
    expect(() => requireServer({ ...server, engine }, false)).toThrow(engine.slice(0, 12))
  },
)

test('a DataSource that has connected to CockroachDB is refused, and one that has connected to PostgreSQL is not', () => {
  const connected = (version: string): DataSource => {
    const dataSource = new DataSource({ type: 'postgres' })
    Object.assign(dataSource.driver, { version })
    return dataSource
  }
  expect(() => requirePostgres(connected('CockroachDB CCL v25.4.0 (x86_64)'), 'a test')).toThrow(
    UnsupportedDatabaseError,
  )
  expect(() => requirePostgres(connected('15.2'), 'a test')).not.toThrow()
})

test('a database without PL/pgSQL is refused where triggers are needed', () => {
  expect(() => requireServer({ ...server, plpgsql: false }, false)).not.toThrow()
  expect(() => requireServer({ ...server, plpgsql: false }, true)).toThrow(/no PL\/pgSQL/u)
})

test.each(['SQL_ASCII', 'LATIN1', 'EUC_JP'])('a database of the encoding %s is refused', (encoding) => {
  expect(() => requireServer({ ...server, encoding }, true)).toThrow(`The database's encoding is ${encoding}`)
})
