import { QueryFailedError } from 'typeorm'
import { expect, test } from 'vitest'
import { endsConnection, isRowError, isSerializationError, serverError } from '../../../src/sql/sqlstate'

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

test.each([
  ['22021', true],
  ['23514', true],
  ['UT001', true],
  ['40001', false],
  ['42P01', false],
  ['0A000', false],
])('%s blames a row: %s', (code, blames) => {
  expect(isRowError(fromServer(code))).toBe(blames)
})

test.each([
  ['08006', true],
  ['57P01', true],
  ['25P03', true],
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
