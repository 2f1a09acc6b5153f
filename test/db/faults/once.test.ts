import type { Client } from 'pg'
import { DataSource, type EntityManager } from 'typeorm'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { findOrCreate } from '../../../src'
import { once, OnceToken } from '../../../src/once'
import { entity, text } from '../../support/entity'
import { useFaultServer } from '../../support/fault-server'
import { driverError, expectAtRest, openDataSource, rejection } from '../../support/ledger'
import { type ConnectionFault, type Proxy, startProxy } from '../../support/proxy'
import { Payment } from '../../support/entities'

const Customer = entity('Customer', { email: text() })

const server = useFaultServer()
let proxy: Proxy
let dataSource: DataSource
let observer: Client

beforeAll(async () => {
  proxy = await startProxy(server().url)
  dataSource = await openDataSource(proxy.url, { entities: [Customer, Payment, OnceToken], poolSize: 4 })
  observer = await server().client()
  // Readiness is asked for once; the faults are to hit what follows.
  await once(dataSource.manager, 'first', pay('first'))
})
afterAll(async () => await proxy.close())

interface Paid {
  readonly created: boolean
  readonly customer: number
}

const pay =
  (token: string) =>
  async (manager: EntityManager): Promise<Paid> => {
    await manager.insert(Payment, { token })
    const { entity, created } = await findOrCreate(manager, Customer, { email: token })
    return { created, customer: entity.id }
  }

const payments = async (token: string): Promise<number> =>
  (await observer.query('select from payment where token = $1', [token])).rows.length

/** What a cut connection is called, by Node.js or by `pg`, and a backend that is ended by the server. */
const CUT = /^(?:Connection terminated unexpectedly|Client has encountered a connection error|ECONNRESET|EPIPE|57P01)/

/** What becomes of a COMMIT whose connection is cut: not known where it goes to the server and nobody waits for it. */
const faults: readonly (readonly [ConnectionFault, 'is replayed' | 'runs' | 'is replayed or runs'])[] = [
  ['request lost', 'runs'],
  ['cut at once', 'is replayed or runs'],
  ['answer lost', 'is replayed'],
  ['closed to the client', 'is replayed'],
]

describe('the answer to COMMIT is lost', () => {
  test.each(faults)('(%s): the repeated call %s, and knows what was created', async (fault, outcome) => {
    const token = `the end, ${fault}`
    const call = async () => await once(dataSource.manager, token, pay(token))
    const sprung = proxy.once(['COMMIT'], fault)
    const error = await rejection(call())
    await sprung
    expect(driverError(error)).toMatch(CUT)
    const again = await call()
    expect(again.answer.created).toBe(true)
    expect(outcome).toContain(again.replayed ? 'is replayed' : 'runs')
    expect(await payments(token)).toBe(1)
    expect(await call()).toEqual({ answer: again.answer, replayed: true })
    await expectAtRest(dataSource, observer)
  })

  test('since the backend was ended between commit and answer: the repeated call is a replay', async () => {
    const token = 'ended'
    const sprung = proxy.once(['COMMIT'], 'answer held')
    const pending = rejection(once(dataSource.manager, token, pay(token)))
    await sprung
    // Committed, and not yet known to the caller: another one has the answer.
    const other = await openDataSource(server().url, { entities: [Customer, Payment, OnceToken], poolSize: 1 })
    const seen = await once(other.manager, token, pay(token))
    expect(seen).toMatchObject({ replayed: true, answer: { created: true } })
    await observer.query('select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()')
    proxy.cutAll()
    expect(driverError(await pending)).toMatch(CUT)
    proxy.release()
    expect(await once(dataSource.manager, token, pay(token))).toEqual(seen)
    expect(await payments(token)).toBe(1)
  })
})

test('a backend that is ended before the commit leaves no token, and the repeated call runs', async () => {
  const token = 'before'
  const pending = rejection(
    once(dataSource.manager, token, async (manager) => {
      const paid = await pay(token)(manager)
      const [{ pid }] = (await manager.query('select pg_backend_pid() as pid')) as [{ pid: number }]
      await observer.query('select pg_terminate_backend($1, 10000)', [pid])
      return paid
    }),
  )
  expect(driverError(await pending)).toMatch(CUT)
  expect(await payments(token)).toBe(0)
  expect(await once(dataSource.manager, token, pay(token))).toMatchObject({ replayed: false })
  await expectAtRest(dataSource, observer)
})

test('a server that crashes keeps the answers it has committed, and no others', async () => {
  const kept = await once(dataSource.manager, 'kept', pay('kept'))
  const lost = rejection(
    once(dataSource.manager, 'lost', async (manager) => {
      const paid = await pay('lost')(manager)
      await server().kill()
      return paid
    }),
  )
  expect(await lost).toBeInstanceOf(Error)
  await server().start()
  observer = await server().client()
  expect(await payments('lost')).toBe(0)
  expect(await once(dataSource.manager, 'kept', pay('kept'))).toEqual({ ...kept, replayed: true })
  expect(await once(dataSource.manager, 'lost', pay('lost'))).toMatchObject({ replayed: false })
  expect(await payments('lost')).toBe(1)
  await expectAtRest(dataSource, observer)
})
