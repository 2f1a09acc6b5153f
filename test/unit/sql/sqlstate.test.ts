import { QueryFailedError } from 'typeorm'
import { expect, test } from 'vitest'
import {
  endsConnection,
  isBusyError,
  isInternal,
  isRowError,
  isSerializationError,
  isStale,
  serverError,
} from '../../../src/sql/sqlstate'

/** An error as `pg` makes it of what the server says. */
const fromServer = (code: string): Error => Object.assign(new Error('any language'), { code, severity: 'ERROR' })
/** An error of Node.js. */
const fromSystem = (code: string): Error => Object.assign(new Error(code), { code })

test("the server's error is found within TypeORM's", () => {
  const error = fromServer('23505')
  expect(serverError(error)).toBe(error)
  expect(serverError(new QueryFailedError('SELECT', [], error))).toBe(error)
})

test('no other error is one, though its code may be as long', () => {
  for (const other of [fromSystem('EPIPE'), fromSystem('23505'), new Error('no code'), '23505', undefined]) {
    expect(serverError(other)).toBeUndefined()
  }
  expect(serverError(Object.assign(new Error('no code'), { severity: 'ERROR' }))).toBeUndefined()
})

test.each(['40001', '40P01'])('%s is lost against another transaction', (code) => {
  expect(isSerializationError(fromServer(code))).toBe(true)
})

test.each(['23505', '40002', '55P03', '57014'])('%s is not', (code) => {
  expect(isSerializationError(fromServer(code))).toBe(false)
  expect(isSerializationError(fromSystem('ECONNRESET'))).toBe(false)
})

test('40001 with a constraint and a hint is the guard, which would refuse the same again', () => {
  const refused = Object.assign(fromServer('40001'), { constraint: 'page url', hint: 'Delete the row.' })
  expect([isSerializationError(refused), isBusyError(refused)]).toEqual([false, false])
  const lost = Object.assign(fromServer('40001'), { constraint: 'page url' })
  expect([isSerializationError(lost), isBusyError(lost)]).toEqual([true, true])
})

test.each(['55P03', '57014', '40001', '40P01'])('%s says that somebody else has what is needed', (code) => {
  expect(isBusyError(fromServer(code))).toBe(true)
  expect(isBusyError(fromServer('23505'))).toBe(false)
})

test.each([
  ['0A000', true],
  ['22021', true],
  ['22023', true],
  ['23514', true],
  ['UT001', true],
  ['P0001', true],
  ['42501', true],
  ['42P01', true],
  ['44000', true],
  ['54000', true],
  ['55000', true],
  ['ABCDE', true],
  ['XX000', true],
  ['08006', false],
  ['25P02', false],
  ['40001', false],
  ['53100', false],
  ['57014', false],
  ['58030', false],
  ['XX001', false],
])('%s blames a row: %s', (code, blames) => {
  expect(isRowError(fromServer(code))).toBe(blames)
})

test.each([
  ['08006', true],
  ['57P01', true],
  ['25P03', true],
  ['25P04', true],
  ['25P02', false],
  ['57014', false],
  ['23505', false],
])('%s ends the connection: %s', (code, ends) => {
  expect(endsConnection(fromServer(code))).toBe(ends)
})

test('what the network says ends the connection', () => {
  expect(endsConnection(fromSystem('EPIPE'))).toBe(true)
  expect(isRowError(fromSystem('23505'))).toBe(false)
})

test('a parameter that the server cannot read blames its row, and the connection goes on', () => {
  const unreadable = Object.assign(fromServer('08P01'), { routine: 'pq_copymsgbytes' })
  expect(isRowError(unreadable)).toBe(true)
  expect(endsConnection(unreadable)).toBe(false)
  expect(isRowError(fromServer('08P01'))).toBe(false)
  expect(endsConnection(fromServer('08P01'))).toBe(true)
})

test('an internal error is one of class XX, whatever follows', () => {
  const failed = (code: string): Error => Object.assign(new Error('failed'), { severity: 'ERROR', code })
  expect(['XX000', 'XX001', 'XX002'].map((code) => isInternal(failed(code)))).toEqual([true, true, true])
  expect(['22P02', '0A000', 'P0001'].map((code) => isInternal(failed(code)))).toEqual([false, false, false])
  expect(isInternal(Object.assign(new Error('of the network'), { code: 'XX000' }))).toBe(false)
})

test("0A000 is a stale statement only from the server's look at a prepared one", () => {
  const from = (routine: string): Error => Object.assign(fromServer('0A000'), { routine })
  expect(isStale(from('RevalidateCachedQuery'))).toBe(true)
  // Citus refuses statements by this code, and would refuse them again.
  expect(isStale(from('DeferErrorIfUnsupported'))).toBe(false)
})
