import { type DataSource, EntitySchema, type EntitySchemaOptions } from 'typeorm'
import { MigrationGenerateCommand } from 'typeorm/commands/MigrationGenerateCommand.js'
import { describe, expect, test } from 'vitest'
import { findHolder, Name, uniqueNameSchema } from '../../../src/names'
import { countWithin, numberWithinSchema } from '../../../src/numbers'
import { useDatabase } from '../../support/database'
import { generate, type Generated, runAll } from '../../support/generated'

const db = useDatabase({ wrapped: true })
const client = db.useClient({ emptied: true })

class Pretty extends MigrationGenerateCommand {
  static all = (statements: readonly string[]): string[] => statements.map((one) => Pretty.prettifyQuery(one))
}

type Row = Record<string, unknown>

/** A holder and a numbered table, whose columns have these names. */
interface Named {
  readonly table: string
  readonly name: string
  readonly scope: string
  readonly number: string
}

const PLAIN: Named = { table: 'thing', name: 'handle', scope: 'tenant', number: 'number' }
// TypeORM itself quotes no quotes.
const ODD: Named = { table: 'its  $guard$ -- table', name: 'na  me -- x', scope: `sc'ope $a$`, number: '% n\\o' }
const LONG: Named = { table: 't'.repeat(63), name: 'n'.repeat(63), scope: 's'.repeat(63), number: 'é'.repeat(31) }

const open = async ({ table, name, scope, number }: Named, declared: boolean): Promise<DataSource> => {
  const columns: EntitySchemaOptions<Row>['columns'] = {
    id: { type: 'integer', primary: true },
    handle: { type: 'text', name, nullable: true },
    tenant: { type: 'integer', name: scope },
  }
  const options = { name: 'Thing', tableName: table, columns }
  const named = uniqueNameSchema<Row>(options, { handle: { namespace: `na'me "space"`, nullable: true } })
  const schema = declared
    ? numberWithinSchema(named, { number: { scope: ['tenant'], count: true, name: number } })
    : options
  return await db.dataSource([...(declared ? [Name] : []), new EntitySchema<Row>(schema)], { synchronize: false })
}

const identifier = (name: string): string => `"${name.replaceAll('"', '""')}"`

async function expectAtWork(dataSource: DataSource, { table, name, scope }: Named): Promise<void> {
  expect((await generate(dataSource)).up).toEqual([])
  const [into, columns] = [identifier(table), ['id', name, scope].map(identifier).join(', ')]
  await client.query(`insert into ${into} (${columns}) values (9, 'nine', 1)`)
  expect(await findHolder(dataSource.manager, `na'me "space"`, 'nine')).toMatchObject({ id: { id: 9 } })
  expect(await findHolder(dataSource.manager, `na'me "space"`, 'one')).toMatchObject({ id: { id: 1 } })
  expect(await countWithin(dataSource.manager, 'Thing', { tenant: 1 })).toBe(3)
  await expect(client.query(`update ${into} set ${identifier(name)} = 'one' where id = 9`)).rejects.toMatchObject({
    code: '23505',
  })
  await client.query(`delete from ${into} where id = 9`)
}

describe.each([
  ['plain names', PLAIN],
  ['odd names', ODD],
  ['long names', LONG],
])('names and numbers of %s', (_, names) => {
  const { table, name, scope } = names

  async function comeAndGo(written: (statements: readonly string[]) => readonly string[]): Promise<void> {
    const run = async (dataSource: DataSource): Promise<Generated> => {
      const { up, down } = await generate(dataSource)
      await runAll(dataSource, written(up))
      expect((await generate(dataSource)).up).toEqual([])
      return { up, down: written(down) }
    }
    const plain = await open(names, false)
    await run(plain)
    const columns = ['id', name, scope].map(identifier).join(', ')
    await client.query(
      `insert into ${identifier(table)} (${columns}) values (1, 'one', 1), (2, 'two', 1), (3, null, 2)`,
    )
    const declared = await open(names, true)
    const came = await run(declared)
    await expectAtWork(declared, names)
    await runAll(plain, came.down)
    expect((await generate(plain)).up).toEqual([])
    await run(declared)
    const gone = await run(plain)
    await runAll(plain, gone.down)
    await expectAtWork(declared, names)
  }

  test('come and go', async () => {
    await comeAndGo((statements) => statements)
  })

  test('come and go in migrations written with --pretty', async () => {
    await comeAndGo(Pretty.all)
  })
})
