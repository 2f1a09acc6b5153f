import { afterAll, beforeAll, expect, test } from 'vitest'
import { describeLookups } from '../../support/sql-lint'
import { recordSentSql } from '../../support/sent-sql'
import { useDatabase } from '../../support/database'
import { openTour, TOUR, type Tour } from '../../support/tour'

const sql = recordSentSql()
const db = useDatabase({ wrapped: true })
let tour: Tour

beforeAll(async () => {
  tour = await openTour(db)
})
afterAll(sql.stop)

test.each(Object.keys(TOUR))('%s looks nothing up by search_path', async (name) => {
  const before = new Set(sql.ours())
  await TOUR[name]?.(tour)
  const sent = [...sql.ours(), ...tour.made].filter((one) => !before.has(one) && !tour.own.has(one))
  // Row types of the user's tables: `search_path` finds them as it finds the tables.
  const ofUser = tour.dataSource.entityMetadatas.map(({ tableName }) => `type ${tableName}: `)
  const found = await describeLookups(sent)
  expect(found.filter((one) => !ofUser.some((start) => one.startsWith(start)))).toEqual([])
})

test('what TypeORM sends is told apart, and all else is seen', () => {
  const sent = sql.ours()
  expect(sent.filter((one) => /FROM "(?:pg_class|information_schema)"/.test(one))).toEqual([])
  expect(sent.length).toBeGreaterThan(100)
})
