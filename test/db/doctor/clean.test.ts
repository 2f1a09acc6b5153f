import { DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, expect, test } from 'vitest'
import { doctor } from '../../../src/doctor'
import { NumberWithin } from '../../../src/numbers'
import { useDatabase } from '../../support/database'
import { Colliding, ENTITIES, fill } from './entities'

const db = useDatabase()

@Entity()
class Invoice {
  @PrimaryGeneratedColumn('identity') id!: number
  @NumberWithin({ count: true }) number!: number
}

let dataSource: DataSource
beforeAll(async () => {
  dataSource = await db.dataSource(ENTITIES)
  await fill(dataSource)
})

test('a clean database with a declaration of every kind gives no finding but information', async () => {
  const { healthy, findings, tables } = await doctor(dataSource, { batchRows: 7 })
  expect(findings.filter(({ severity }) => severity !== 'information')).toEqual([])
  expect(findings.map(({ code, entity }) => `${entity} ${code}`)).toEqual(['Colliding chain.collision'])
  expect(healthy).toBe(true)
  const looked = tables.flatMap(({ entity, declarations }) =>
    declarations.map(({ property, kind, rows, nulls }) => `${entity}.${property} ${kind} ${rows} ${nulls}`),
  )
  expect(looked.toSorted()).toMatchInlineSnapshot(`
    [
      "Colliding.text text 10 0",
      "Comment.number number 10 0",
      "Name.text text 21 0",
      "Organization.slug name 10 0",
      "Page.url text 10 0",
      "Person.name text 10 0",
      "Scoped.note text 10 3",
      "Soft.text text 10 0",
      "Ticket.number number 10 0",
      "Url.url text 10 0",
      "User.handle name 10 0",
    ]
  `)
})

test('collisions and the longest chain are told, and are nothing wrong', async () => {
  const { findings, tables } = await doctor(dataSource, { entities: [Colliding] })
  expect(findings).toMatchObject([{ code: 'chain.collision', severity: 'information', count: 2 }])
  expect(tables[0]?.declarations).toMatchObject([{ collisions: 2, longestChain: 5 }])
})

test('the rows of a statement are bounded by batchRows', async () => {
  let most = 0
  let statements = 0
  const watched = await db.dataSource(ENTITIES, {
    synchronize: false,
    subscribers: [],
  })
  watched.subscribers.push({
    afterQuery: ({ rawResults }: { rawResults: unknown }) => {
      statements++
      if (Array.isArray(rawResults)) most = Math.max(most, rawResults.length)
    },
  } as never)
  await doctor(watched, { batchRows: 3 })
  expect(statements).toBeGreaterThan(50)
  expect(most).toBeLessThanOrEqual(3)
})

test('the only count of a number without scope is looked at once, and the doctor ends', async () => {
  const invoices = await db.dataSource([Invoice])
  await invoices.manager.save(Invoice, [{}, {}])
  expect((await doctor(invoices)).findings).toEqual([])
})
