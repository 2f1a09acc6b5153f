/** The entry `typeorm-unique-text/typeorm`: for applications that keep to TypeORM's own calls. */
export { textCondition, uniqueTextPaths } from './text-condition'
export { textEquals, textIn } from './text-operators'
export { toTextTakenError } from './to-text-taken-error'
