import { expect, test } from 'vitest'
import { factsOf, PreparedNames } from '../../../src/connection/wire'

const nameOf = (names: PreparedNames, statement: string, now = 0): string => names.take(statement, now)?.name ?? 'none'

test('a statement keeps its name from use to use, and each connection has its own', () => {
  const client = {}
  expect(factsOf(client).names).toBe(factsOf(client).names)
  expect(factsOf({}).names).not.toBe(factsOf(client).names)
  const names = factsOf(client).names
  expect(names.take('a', 0)).toMatchObject({ name: 'a_1', uses: 1 })
  expect(names.take('a', 59_999)).toMatchObject({ name: 'a_1', uses: 2 })
  expect(names.takeGivenUp()).toEqual([])
})

test('a name ends after a minute, and after 1,000 uses', () => {
  const names = new PreparedNames()
  expect(nameOf(names, 'a', 5)).toBe('a_1')
  expect(nameOf(names, 'a', 60_005)).toBe('a_2')
  expect(names.takeGivenUp()).toEqual(['a_1'])
  expect(names.takeGivenUp()).toEqual([])
  for (let use = 2; use <= 1_000; use += 1) expect(nameOf(names, 'a', 60_005)).toBe('a_2')
  expect(names.take('a', 60_005)).toMatchObject({ name: 'a_3', uses: 1 })
  expect(names.takeGivenUp()).toEqual(['a_2'])
})

test('of more than 200 names the least recently used are given up, many at once', () => {
  const names = new PreparedNames()
  for (let index = 0; index < 200; index += 1) nameOf(names, `s${index}`)
  expect(nameOf(names, 's0')).toBe('s0_1')
  expect(names.takeGivenUp()).toEqual([])
  expect(nameOf(names, 'one more')).toBe('one more_1')
  const givenUp = names.takeGivenUp()
  expect(givenUp).toHaveLength(50)
  expect([givenUp[0], givenUp.at(-1)]).toEqual(['s1_1', 's50_1'])
  expect(nameOf(names, 's0')).toBe('s0_1')
  expect(nameOf(names, 's1')).toBe('s1_2')
})

test('a name that is lost takes all others with it, and the next names are others', () => {
  const names = new PreparedNames()
  nameOf(names, 'a')
  nameOf(names, 'b')
  names.lose(0)
  expect(names.takeGivenUp()).toEqual(['a_1', 'b_1'])
  expect(names.take('a', 0)).toMatchObject({ name: 'a_2', uses: 1 })
})

test('a statement has ten names in turn, however long the connection lives', () => {
  const names = new PreparedNames()
  const taken = Array.from({ length: 100 }, (_, minute) => nameOf(names, 'a', minute * 60_000))
  expect([...new Set(taken)]).toEqual(Array.from({ length: 10 }, (_, turn) => `a_${turn + 1}`))
  expect(taken.some((name, minute) => name === taken[minute - 1])).toBe(false)
})

test('after the third loss the connection keeps no names', () => {
  const names = new PreparedNames()
  for (let loss = 0; loss < 3; loss += 1) {
    expect(names.take('a', 0)).toBeDefined()
    names.lose(0)
  }
  expect(names.take('a', 0)).toBeUndefined()
})

test('a connection that lost its names too often prepares again after ten minutes, and stops at the next loss', () => {
  const names = new PreparedNames()
  for (let nth = 0; nth < 3; nth += 1) names.lose(1_000)
  expect(names.take('a', 600_999)).toBeUndefined()
  expect(names.take('a', 601_000)).toBeDefined()
  names.lose(601_000)
  expect(names.take('a', 1_200_999)).toBeUndefined()
})

test('losses that lie ten minutes apart never stop a connection from preparing', () => {
  const names = new PreparedNames()
  for (let nth = 1; nth < 9; nth += 1) {
    names.lose(nth * 600_000)
    expect(names.take('a', nth * 600_000)).toBeDefined()
  }
})
