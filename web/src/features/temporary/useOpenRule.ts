import { useNavigate } from '@tanstack/react-router';

/** The result also works after the component is gone. */
export function useOpenRule(tenant: string) {
  const navigate = useNavigate();
  return (rule: string) => {
    void navigate({ to: '/t/$tenant/rules/$rule', params: { tenant, rule: String(rule) } });
  };
}
