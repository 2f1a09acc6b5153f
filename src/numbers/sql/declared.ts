import { attach, detach, fillNumbers } from '../../sql/library'
import { type NumberTable, scopeKey, scopesName } from '../../sql/numbers'
import { plainName } from '../../sql/identifier'
import {
  type HandOver,
  type KeptTable,
  type WantedDeclaration,
  wantedDeclaration,
  type WantedTrigger,
} from '../../triggers/attached'
import { type NumberedDeclaration, shortDeclaration } from '../../triggers/kinds'

/** Describes the table of scopes that attach makes. */
export const keptScopes = (table: NumberTable): KeptTable => ({
  name: scopesName(table),
  columns: {
    ...(table.scope.length === 0 ? { whole: 'boolean' } : {}),
    ...Object.fromEntries(table.scope.map(({ name }, position) => [`s${position}`, { like: name }])),
    n: 'bigint',
    last: 'bigint',
  },
  primary: scopeKey(table),
  trigger: 'restore_with_disable_triggers',
})

/** Returns the declaration of a number, with its triggers. docs/numbers.md explains them. */
export function numberOf(table: NumberTable): WantedDeclaration<NumberedDeclaration> {
  const { count, triggers: label } = table
  const keeps = table.reuse === false
  const trigger = (type: number, suffix: string, conditional = false, transitions = ''): WantedTrigger => ({
    name: `${label}_${suffix}`,
    type,
    runs: 'all',
    conditional,
    transitions,
  })
  const triggers = [
    trigger(count ? 30 : 22, 'look'),
    trigger(7, 'place_insert', !count && !keeps),
    trigger(19, 'place_update', true),
    ...(keeps ? [trigger(5, 'keep_insert'), trigger(17, 'keep_update', true)] : []),
    ...(count
      ? [
          trigger(4, 'count_insert', false, 'NEW TABLE AS came'),
          trigger(16, 'count_update', false, 'OLD TABLE AS gone NEW TABLE AS came'),
          trigger(8, 'count_delete', false, 'OLD TABLE AS gone'),
          trigger(32, 'count_truncate'),
        ]
      : []),
  ]
  return wantedDeclaration({
    table,
    declaration: declarationOf(table),
    label,
    triggers,
    tables: table.citus ? [] : [keptScopes(table)],
  })
}

const declarationOf = (table: NumberTable): NumberedDeclaration => ({
  kind: 'number',
  protocol: 1,
  name: table.name,
  number: table.number,
  type: table.type,
  index: table.index,
  scope: table.scope.map(({ name }) => name),
  count: table.count,
  reuse: table.reuse !== false,
  start: table.start ?? 1,
  ...(table.count && table.deleted !== undefined ? { deleted: table.deleted } : {}),
  ...(table.citus ? { citus: true } : {}),
  ...(table.triggers === `numbers_${table.table}__${table.name}` ? {} : { guard: table.triggers }),
})

/** Numbers every row that has no number, after the highest of its scope, or all rows anew, in the order of the key. */
export const fillRows = (table: NumberTable, anew: boolean): string => fillOf(table, declarationOf(table), anew)

export const fillOf = (
  table: Pick<NumberTable, 'schema' | 'table'>,
  { number, scope, start }: Pick<NumberedDeclaration, 'number' | 'scope' | 'start'>,
  anew: boolean,
): string => fillNumbers(table, { number, scope, ...(start === 1 ? {} : { start }) }, anew)

/**
 * Lets the numbers that are not given again go from one declaration to another one of the same scope.
 *
 * @param was the columns of the former scope, by their names after the migration, in their former order
 */
export function handOver(
  table: NumberTable,
  former: NumberedDeclaration,
  was: readonly string[],
): HandOver | undefined {
  const declared = declarationOf(table)
  const isSame = was.length === declared.scope.length && was.every((name) => declared.scope.includes(name))
  if (former.reuse || declared.reuse || !isSame) return undefined
  const kept = plainName('numbers_former', table.table, former.name)
  const given = (whole: NumberedDeclaration, scope: readonly string[]): string =>
    attach(table, 'number', { ...shortDeclaration(whole), former: { scopes: kept, scope } })
  const back = declared.scope.map((name) => former.scope[was.indexOf(name)] ?? name)
  return {
    up: [detach(table, former, kept), given(declared, was)],
    down: [detach(table, declared, kept), given(former, back)],
  }
}
