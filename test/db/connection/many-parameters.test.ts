import { Column, type DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { insertOrFail, UniqueText } from '../../../src'
import { openSession } from '../../../src/connection/open-session'
import type { Statement } from '../../../src/sql/find'
import { useDatabase } from '../../support/database'

const db = useDatabase()

const COLUMNS = Array.from({ length: 38 }, (_, index) => `c${index}`)

class Wide {
  id!: number
  url!: string;
  [column: string]: unknown
}

let dataSource: DataSource

beforeAll(async () => {
  PrimaryGeneratedColumn('identity', { type: 'integer' })(Wide.prototype, 'id')
  UniqueText()(Wide.prototype, 'url')
  for (const name of COLUMNS) Column({ type: 'integer' })(Wide.prototype, name)
  Entity()(Wide)
  dataSource = await db.dataSource([Wide])
})

/** Counts its parameters, of which the last is bytes. */
const counting = (count: number): Statement<number> => ({
  name: `count_${count}`,
  sql:
    `SELECT cardinality(ARRAY[${Array.from({ length: count - 1 }, (_, index) => `$${index + 1}::text`).join(',')}]) ` +
    `+ octet_length($${count}::bytea)`,
  parse: ([sum]) => sum as number,
})

describe.each([32_767, 32_768, 65_535])('%i parameters of one statement', (count) => {
  describe.each([String.raw`\x00`, Buffer.from([0])])('the last of which is %j', (last) => {
    const values = [...Array.from({ length: count - 1 }, () => 'a'), last]

    test('arrive outside a transaction', async () => {
      const session = await openSession(dataSource.manager)
      expect(await session.rows(counting(count), values)).toEqual([count])
      await session.close()
    })

    test('arrive in a transaction, behind a savepoint', async () => {
      await dataSource.transaction(async (manager) => {
        const session = await openSession(manager)
        expect(await session.rowsOrRollBack(counting(count), values)).toEqual([count])
      })
    })
  })
})

// 39 parameters a row. The second list needs two statements.
describe.each([900, 1_500])('insertOrFail of %i rows of 39 values', (length) => {
  const rowsOf = (name: string): Partial<Wide>[] =>
    Array.from({ length }, (_, row) => ({
      url: `${name} ${length} ${row}`,
      ...Object.fromEntries(COLUMNS.map((column) => [column, row])),
    }))

  test('writes all of them outside a transaction', async () => {
    expect(await insertOrFail(dataSource.manager, Wide, rowsOf('outside'))).toHaveLength(length)
  })

  test('writes all of them in a transaction', async () => {
    await dataSource.transaction(async (manager) => {
      expect(await insertOrFail(manager, Wide, rowsOf('inside'))).toHaveLength(length)
    })
  })
})
