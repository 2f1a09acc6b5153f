import { type DataSource, DefaultNamingStrategy } from 'typeorm'
import { expect, test } from 'vitest'
import { DeclarationError } from '../../../src'
import { once, OnceToken, removeExpiredTokens } from '../../../src/once'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'

const db = useDatabase()

/** Another name for every column that has none given. */
class Shouting extends DefaultNamingStrategy {
  override columnName(property: string, custom: string): string {
    return custom || `My ${property}`
  }
}

/** Changes names that are given, too. */
class Prefixing extends DefaultNamingStrategy {
  override columnName(property: string, custom: string): string {
    return `c_${custom || property}`
  }
}

async function tryAll(dataSource: DataSource): Promise<void> {
  const { manager } = dataSource
  expect(await once(manager, 'token', () => ({ n: 1 }), { expires: '1 hour' })).toMatchObject({ replayed: false })
  expect(await once(manager, 'token', () => 2)).toEqual({ answer: { n: 1 }, replayed: true })
  expect(await rejection(once(manager, 'other', () => 1n as never))).toBeInstanceOf(DeclarationError)
  await manager.update(OnceToken, { token: 'token' }, { expiresAt: new Date(0) })
  expect(await once(manager, 'token', () => 3, { expires: '1 hour' })).toEqual({ answer: 3, replayed: false })
  await manager.update(OnceToken, { token: 'token' }, { expiresAt: new Date(0) })
  expect(await removeExpiredTokens(manager)).toBe(1)
  const { upQueries } = await dataSource.driver.createSchemaBuilder().log()
  expect(upQueries).toEqual([])
}

test.each<[string, columns: string, prefix: string, namingStrategy?: DefaultNamingStrategy]>([
  ['the table may lie in a schema and have a prefix', 'token', 'app_'],
  ['its columns keep their names under a naming strategy', 'answered_at', '', new Shouting()],
  ['a naming strategy may change names that are given', 'c_answered_at, c_token_hash', '', new Prefixing()],
])('%s', async (schema, columns, entityPrefix, namingStrategy) => {
  const client = await db.client()
  await client.query(`create schema "${schema}"`)
  await tryAll(await db.dataSource([OnceToken], { schema, entityPrefix, ...(namingStrategy && { namingStrategy }) }))
  expect((await client.query(`select ${columns} from "${schema}".${entityPrefix}once_tokens`)).rows).toEqual([])
})

test('a search_path of an attacker does not change what is called', async () => {
  const client = await db.client()
  await client.query(`create schema evil; create function evil.statement_timestamp() returns timestamptz
    language sql as $$ select 'infinity'::timestamptz $$`)
  const extra = { options: '-c search_path=evil,public,pg_catalog' }
  await tryAll(await db.dataSource([OnceToken], { extra }))
})
