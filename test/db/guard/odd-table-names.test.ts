import { EntitySchema, type EntitySchemaOptions } from 'typeorm'
import { expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, updateOrFail, uniqueTextSchema, upsertByText } from '../../../src'
import { doctor } from '../../../src/doctor'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'
import { STEVENS } from '../../support/md5-collisions'

const db = useDatabase()

interface Row {
  id: number
  text: string
  n: number | null
}

/** A table, and a column of it, called as a transition table or a variable of the guard is, or an alias. */
test.each(['new_rows', 'old_rows', 'new', 'old', 't', 'r', 'o', 'n', 'k', 'me', 'anchor', 'moved', 'changed'])(
  'a table called %s holds texts as any other',
  async (table) => {
    const options = {
      name: `Odd ${table}`,
      tableName: table,
      columns: {
        id: { type: 'integer', primary: true, generated: true },
        text: { type: 'text' },
        n: { type: 'integer', nullable: true, name: table },
      },
    } as const satisfies EntitySchemaOptions<Row>
    // The extra checks of PL/pgSQL, for what a filled table is changed by too.
    const strict = { extra: { options: '-c plpgsql.extra_errors=all' } }
    const plain = await db.dataSource([new EntitySchema<Row>(options)], strict)
    await plain.query(`insert into "${table}" (text) values ($1), ($2)`, [...STEVENS])
    const Odd = new EntitySchema<Row>(uniqueTextSchema(options, { text: {} }))
    const dataSource = await db.dataSource([Odd], strict)
    const { manager } = dataSource
    for (const text of STEVENS) expect(await findOrCreate(manager, Odd, { text })).toMatchObject({ created: false })
    await findOrCreateMany(manager, Odd, [{ text: 'a' }, { text: 'b' }])
    await upsertByText(manager, Odd, [{ text: 'a', n: 2 }])
    await updateOrFail(manager, Odd, 3, { text: 'c' })
    await dataSource.query(`update "${table}" set text = text || 'x'`)
    expect(await rejection(dataSource.query(`insert into "${table}" (text) values ('cx')`))).toMatchObject({
      code: 'TEXT_TAKEN',
    })
    await dataSource.query(`delete from "${table}" where text = 'cx'`)
    expect(await doctor(dataSource)).toMatchObject({ healthy: true })
  },
)
