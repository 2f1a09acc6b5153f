import { beforeEach, expect, test } from 'vitest'
import { findOrCreate, SchemaDriftError } from '../../../src'
import { doctor } from '../../../src/doctor'
import { ensureTriggers } from '../../../src/schema/readiness'
import { useDatabase } from '../../support/database'
import { dropSchemas } from '../../support/databases'
import { entity, numberWithin, text } from '../../support/entity'
import { generate, migrate } from '../../support/generated'

const db = useDatabase()
const client = db.useClient()

beforeEach(async () => {
  await dropSchemas(client)
  await client.query('create schema public')
})

const Both = entity('Both', { text: text(), number: numberWithin() }, { name: 'thing' })
const Numbered = entity('Numbered', { number: numberWithin() }, { name: 'thing' })

const open = async (one: typeof Both | typeof Numbered) => await db.dataSource([one], { synchronize: false })

test('the first operation on a unique text refuses a table that lacks the other triggers', async () => {
  const dataSource = await open(Both)
  await migrate(dataSource)
  const name = 'numbers_thing__number_look'
  await client.query(`alter table thing disable trigger ${name}`)
  const find = async (): Promise<unknown> => await findOrCreate(dataSource.manager, Both, { text: 'x' })
  const error = await find().then(String, (one: unknown) => one)
  expect(error).toBeInstanceOf(SchemaDriftError)
  expect((error as SchemaDriftError).findings).toEqual([{ kind: 'disabled', object: 'trigger', name }])
  await client.query(`alter table thing enable trigger ${name}`)
  await find()
})

test('a table without a unique text is looked at once, and again after a failure', async () => {
  const dataSource = await open(Numbered)
  const metadata = dataSource.getMetadata('Numbered')
  let asked = 0
  const ensure = async (): Promise<void> => {
    await ensureTriggers(metadata, async (sql, values) => {
      asked++
      return await dataSource.query<unknown[]>(sql, values)
    })
  }
  await expect(ensure()).rejects.toMatchObject({ findings: [{ kind: 'missing', object: 'table', name: 'thing' }] })
  await migrate(dataSource)
  const index = metadata.indices[0]?.name ?? ''
  await client.query(`drop trigger numbers_thing__number_place_update on thing; drop index "${index}"`)
  await expect(ensure()).rejects.toMatchObject({
    findings: [
      { kind: 'missing', object: 'index', name: index },
      { kind: 'missing', object: 'trigger', name: 'numbers_thing__number_place_update' },
    ],
  })
  await migrate(dataSource)
  await ensure()
  await ensure()
  expect(asked).toBe(3)
})

test.each([
  ['of statements that an earlier release generated', `'-- typeorm-unique-text names: generated, do not edit'`, ''],
  ['with several arguments', `''`, `'{"kind": "number", "name": "number"}', '{}'`],
  ['with an argument that is no JSON', `''`, `'{"kind": "number"'`],
  ['with a declaration of a kind that nobody knows', `''`, `'{"kind": "shape", "name": "thing", "protocol": 1}'`],
  ['with a declaration that is none', `''`, `'{"kind": "number", "name": 7, "scope": "id"}'`],
])('a trigger %s is left alone, and nothing is in its way', async (_, head, args) => {
  const dataSource = await open(Both)
  await migrate(dataSource)
  await client.query(
    `do $do$ begin execute format('create function left_over() returns trigger language plpgsql as %L',
       e'\\n' || ${head} || e'\\nbegin return new; end'); end $do$;
     create trigger numbers_thing__text_rest before insert on thing for each row execute function left_over(${args})`,
  )
  expect((await generate(dataSource)).up).toEqual([])
  await findOrCreate(dataSource.manager, Both, { text: 'x' })
  expect((await doctor(dataSource)).findings).toEqual([])
})
