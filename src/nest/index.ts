export { Idempotent, IdempotentManager, IdempotentModule, type IdempotentModuleOptions } from './idempotent'
export { UniqueTextExceptionFilter } from './exception-filter'
